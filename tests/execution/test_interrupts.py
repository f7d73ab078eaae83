from pathlib import Path
from typing import Any

import pytest
from distributed import Nanny

from sparseoco.execution.clusters import ClusterOptions, connect


class ForeignStop(BaseException):
    """Raised by the signal handler of another program."""


def test_workers_are_killed_at_a_stop_and_none_is_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, instantiate = [], Nanny.instantiate

    async def count(nanny: Nanny) -> Any:
        started.append(nanny)
        return await instantiate(nanny)

    monkeypatch.setattr(Nanny, "instantiate", count)
    with pytest.raises(ForeignStop), connect(ClusterOptions(workers=1), tmp_path):
        (nanny,) = started
        process = nanny.process.process
        raise ForeignStop
    assert process.exitcode == -9
    assert len(started) == 1
