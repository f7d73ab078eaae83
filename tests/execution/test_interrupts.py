from pathlib import Path
from typing import Any

import pytest
from distributed import Nanny

from sparseoco.execution.clusters import ClusterOptions, connect


class AnothersStop(BaseException):
    """What another program's handler of signals raises."""


def test_workers_are_killed_at_a_stop_and_none_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, instantiate = [], Nanny.instantiate

    async def count(nanny: Nanny) -> Any:
        started.append(nanny)
        return await instantiate(nanny)

    monkeypatch.setattr(Nanny, "instantiate", count)
    with pytest.raises(AnothersStop), connect(ClusterOptions(workers=1), tmp_path):
        (nanny,) = started
        process = nanny.process.process
        raise AnothersStop
    assert process.exitcode == -9
    assert len(started) == 1
