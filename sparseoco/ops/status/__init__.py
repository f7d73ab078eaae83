"""What a run has come to, from its files alone: for who looks at one that is under way, has ended or was stopped."""

from sparseoco.ops.status.run import Status, Step, read_status

__all__ = ["Status", "Step", "read_status"]
