"""Tests of what Mohri and Yang (2015) prove and say; the paper has no experiments."""
