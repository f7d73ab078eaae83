"""Saved models: the files of their folder, and a model opened for prediction."""
