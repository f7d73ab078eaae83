"""Errors keep their type, message and attributes on their way from a worker."""

import pickle

import pytest

from sparseoco.core.errors import DamagedError, FolderInUseError, InputError, SparseocoError
from sparseoco.execution.pool import TaskError
from sparseoco.storage.remote import RemoteError


@pytest.mark.parametrize(
    "error",
    [
        SparseocoError("the message", code="task-failed"),
        InputError("the message", code="unknown-parameter"),
        DamagedError("the message", code="corrupt-file"),
        FolderInUseError.by("process 7", "folder"),
        RemoteError("the message", code="no-answer"),
        TaskError("Training failed", "out of memory", code="out-of-memory"),
    ],
)
def test_errors_survive_pickling(error: SparseocoError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), copy.code, copy.__dict__) == (str(error), error.code, error.__dict__)
    assert str(error)
