"""Nightly runs, one after the other into one folder: run 1,000 costs as much as an early one."""

from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from tests.support.soak import RunCost, soak

KEEP = {"window = 2": "window = 2\nkeep_models = 5"}


@pytest.mark.chaos
@pytest.mark.fault(60)
def test_opens_and_bytes_do_not_grow_with_the_runs(tmp_path: Path) -> None:
    """Counts, not clocks, which `test_many_runs` reads. A run that promotes a model opens more files than others."""
    costs = list(soak(tmp_path, 10, **KEEP))
    early, late = costs[3:6], costs[-3:]
    for counted in ("opens", "listings"):
        most = [max(getattr(cost, counted) for cost in part) for part in (early, late)]
        assert most[1] < most[0] + 15, [getattr(cost, counted) for cost in costs]
    grown = [after.bytes - before.bytes for before, after in pairwise(costs)]
    assert median(grown[-3:]) < 1.25 * median(grown[2:5]), grown
    assert len({cost.descriptors for cost in costs[3:]}) == 1


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(39, 60)
@pytest.mark.parametrize(("runs", "varied"), [(1000, False), (200, True)])
def test_many_runs(tmp_path: Path, runs: int, varied: bool) -> None:
    """Processor time, opens, files, descriptors and memory of the last runs against early ones."""
    costs = list(soak(tmp_path, runs, varied=varied, **KEEP))
    print(report(costs))
    early, late, middle = costs[10:30], costs[-20:], costs[runs // 2]
    # Every input file is looked at, twice: 1.8 times at 1,000 files.
    assert median(cost.seconds for cost in late) < 2 * median(cost.seconds for cost in early)
    assert median(cost.opens for cost in late) < 1.5 * median(cost.opens for cost in early)
    assert {cost.descriptors for cost in costs[3:]} == {costs[3].descriptors}
    assert costs[-1].rss - middle.rss < 32 << 20
    second, last = (costs[k * runs // 4 - 1].bytes - costs[(k - 1) * runs // 4 - 1].bytes for k in (2, 4))
    assert last < 1.5 * second  # of four quarters: linear


def report(costs: list[RunCost]) -> str:
    """A line for some of the runs."""
    return "\n".join(
        f"run {number:>4}: {median(cost.seconds for cost in costs[max(0, number - 10) : number]):.3f} s, "
        f"{costs[number - 1].opens} opens, {costs[number - 1].listings} listings, {costs[number - 1].files} files, "
        f"{costs[number - 1].bytes:,} bytes, {costs[number - 1].rss >> 20} MiB"
        for number in (1, 3, 10, 30, 100, 300, 1000)
        if number <= len(costs)
    )
