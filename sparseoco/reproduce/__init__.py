"""Experiments of the papers, run again: their data and parameters → tables, figures, what holds and what does not."""

from sparseoco.reproduce.onseg import reproduce_onseg

__all__ = ["reproduce_onseg"]
