"""Leaderboard, page and summary of a run, from the files in its folder."""
