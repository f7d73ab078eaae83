"""A bit flipped at random, a file cut short or swapped: the same result or one sentence, never a signal or a traceback.

SPARSEOCO_CHAOS_TRIALS is the number of flips of each kind of file, SPARSEOCO_CHAOS_SEED the seed.
"""

import os
import random
from pathlib import Path

import pytest

from tests.chaos.damage import Tree
from tests.chaos.kinds import KINDS

TRIALS = int(os.environ.get("SPARSEOCO_CHAOS_TRIALS", "200"))
OTHERS = max(TRIALS // 6, 1)  # cuts, swaps, values of another shape
SEED = os.environ.get("SPARSEOCO_CHAOS_SEED", "0")


@pytest.mark.chaos
@pytest.mark.fault(12, 13, 49, 50, 52, 57)
@pytest.mark.parametrize("kind", list(KINDS))
def test_damaged_files(kind: str, tmp_path: Path) -> None:
    choose = random.Random(SEED)
    with Tree(kind, tmp_path) as tree:
        damages = list(tree.flips(TRIALS, f"{SEED} {kind}"))
        damages += tree.reshapes(OTHERS, f"{SEED} {kind}")
        for others in (list(tree.truncations()), list(tree.swaps())):
            damages += choose.sample(others, min(OTHERS, len(others)))
        wrong = [tree.check(damage, i) for i, damage in enumerate(damages)]
    found = [line for line in wrong if line is not None]
    assert not found, "\n".join([f"seed {SEED}, {len(found)} of {len(wrong)}:", *found])
