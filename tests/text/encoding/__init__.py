"""Tests of sparseoco.text.encoding."""
