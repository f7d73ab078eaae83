"""Partial counts and the vocabulary to the rows of shards."""
