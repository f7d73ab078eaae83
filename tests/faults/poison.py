"""Loaded by workers: a configuration that ends its process when it starts."""

import os
from typing import Any

from sparseoco.search.worker import BlockRun
from sparseoco.store.shards import Store
from sparseoco.training.block import Block
from tests.faults.commands import OPTIONS

_BAD = OPTIONS.configurations()[5].parameters
_new = BlockRun.new.__func__  # type: ignore[attr-defined]


def _poisoned(cls: type[BlockRun], block: Block, store: Store) -> Any:
    if _BAD in block.configurations:
        os._exit(9)
    return _new(cls, block, store)


BlockRun.new = classmethod(_poisoned)  # type: ignore[assignment]
