"""Damage to files: one flipped bit, a cut, an empty file, a missing one."""

import random
from pathlib import Path

KINDS = ("flipped", "cut", "empty", "missing")


def flip_bit(path: Path, rng: random.Random) -> int:
    """Flip one random bit of a file; returns its number."""
    data = bytearray(path.read_bytes())
    bit = rng.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    return bit


def damage(path: Path, kind: str, rng: random.Random) -> None:
    """Damage a file in one of `KINDS`."""
    if kind == "missing":
        path.unlink()
    elif kind == "flipped" and path.stat().st_size:
        flip_bit(path, rng)
    else:
        data = path.read_bytes()
        path.write_bytes(data[: rng.randrange(len(data))] if kind == "cut" and data else b"")
