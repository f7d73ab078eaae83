"""Loaded by workers: a configuration that ends the process it is begun in."""

import os
from typing import Any

from sparseoco.cluster.block import Block
from sparseoco.cluster.course import Course
from sparseoco.shards import Store
from tests.faults.test_search_kills import OPTIONS

_BAD = OPTIONS.configurations()[5].parameters
_begin = Course.begin.__func__  # type: ignore[attr-defined]


def _poisoned(cls: type[Course], block: Block, store: Store) -> Any:
    if _BAD in block.configurations:
        os._exit(9)
    return _begin(cls, block, store)


Course.begin = classmethod(_poisoned)  # type: ignore[assignment]
