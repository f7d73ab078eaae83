"""What Mohri and Yang (2015) prove and say, tried out: they print no experiments."""

from sparseoco.papers.caos.experiment import reproduce_caos

__all__ = ["reproduce_caos"]
