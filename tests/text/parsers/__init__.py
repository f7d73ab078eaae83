"""Tests of sparseoco.text.parsers."""
