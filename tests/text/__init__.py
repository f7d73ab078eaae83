"""Tests of text to counts."""
