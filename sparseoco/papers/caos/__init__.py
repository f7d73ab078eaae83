"""Tests of what Mohri and Yang (2015) prove and say; the paper has no experiments."""

from sparseoco.papers.caos.experiment import reproduce_caos

__all__ = ["reproduce_caos"]
