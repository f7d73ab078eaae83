"""Partial counts to the vocabulary: merge, select, number."""
