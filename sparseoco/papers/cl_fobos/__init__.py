"""The experiments of Togari and Yamashita (2016), §5: component-wise against common lazy evaluation of FOBOS."""

from sparseoco.papers.cl_fobos.experiment import reproduce_cl_fobos

__all__ = ["reproduce_cl_fobos"]
