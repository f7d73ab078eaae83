"""The experiments of Liu et al. (2019), §4: online Newton steps with estimated gradients (ONSEG) and its peers."""

from sparseoco.papers.onseg.experiment import reproduce_onseg

__all__ = ["reproduce_onseg"]
