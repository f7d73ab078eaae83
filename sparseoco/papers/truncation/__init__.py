"""The experiments of Oiwa, Matsushima and Nakagawa: STDA (2012, §V) and SGFT (2011, §5), by one protocol."""

from sparseoco.papers.truncation.experiment import reproduce_sgft, reproduce_stda

__all__ = ["reproduce_sgft", "reproduce_stda"]
