"""Tests of sparseoco.text.vocabulary."""
