"""The progress of a run, read from its files, whether it is running, complete or was interrupted."""

from sparseoco.ops.status.run import Status, Step, read_status

__all__ = ["Status", "Step", "read_status"]
