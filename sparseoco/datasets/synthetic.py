"""A made corpus of any size: JSON lines whose words follow Zipf's law and whose labels a few words decide.

A folder, local or at an address::

    planted.json           what was asked for, and the weights behind the labels
    text/part-00000.jsonl  file f is a function of the seed, f and its size alone; a larger one begins with a smaller

Files are there whole or not at all; those that are there are kept, so a run that was killed goes on.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.core.progress import ProgressCallback
from sparseoco.kernels.synthetic_text import ROOM, make_documents, spell
from sparseoco.storage.commit import commit_json, committed, exclusive_lock, read_json
from sparseoco.storage.locations import Location

FILE_BYTES = 256 << 20
BUFFER_BYTES = 8 << 20
MOST_WORDS = 100 + 100**2 + 100**3 + 100**4  # of the vocabulary: four syllables
INFORMATIVE = 200  # words that decide, evenly over the logarithm of these ranks
FIRST_INFORMATIVE, LAST_INFORMATIVE = 30, 30_000
LEAST_WEIGHT, MOST_WEIGHT = 0.5, 1.5


class SyntheticCorpus(NamedTuple):
    """What a made corpus is a function of: `files` of `bytes` / `files` each, to the end of a document.

    vocabulary  N different words, of ranks 1 … N
    exponent    s of Zipf's law, P(rank r) ∝ about (r + ½)^(−s)
    """

    bytes: int
    files: int
    vocabulary: int = 1_000_000
    exponent: float = 1.1
    classes: int = 2
    seed: int = 0


class Planted(NamedTuple):
    """The weights behind the labels: those words of these ranks (int64, increasing) speak for one class each."""

    ranks: NDArray[np.int64]
    classes: NDArray[np.int64]
    weights: NDArray[np.float64]


def generate(
    made: SyntheticCorpus, out: Location, *, threads: int | None = None, progress: ProgressCallback | None = None
) -> list[Location]:
    """Write the corpus to the folder `out`, in as many threads as there are processors; gives its files.

    Raises `InputError` for what cannot be made and for a folder with another corpus, and `StorageError`.
    """
    check(made)
    planted = plant(made)
    paths: list[Location] = [out / "text" / f"part-{file:05}.jsonl" for file in range(made.files)]
    described = describe(made, planted)
    with exclusive_lock(out):
        if (out / "planted.json").exists():
            if read_json(out / "planted.json") != described:
                raise InputError(f"{out} holds another made corpus: choose another folder, or repeat its options.")
        else:
            commit_json(out / "planted.json", described)
        for left in (out / "text").glob(".part-*.tmp"):  # of a run that was killed
            left.unlink(missing_ok=True)
        done = 0
        with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0)), thread_name_prefix="generate") as pool:
            written = [pool.submit(write_file, made, planted, file, path) for file, path in enumerate(paths)]
            try:
                for future in written:
                    done += future.result()
                    if progress is not None:
                        progress("generate", min(done, made.bytes), made.bytes)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return paths


def check(made: SyntheticCorpus) -> None:
    """Raises `InputError` for what cannot be made."""
    if made.bytes < 1:
        raise InputError("A made corpus has at least one byte.")
    if not 1 <= made.files <= 100_000:
        raise InputError("A made corpus has between 1 and 100,000 files.")
    if not 1 <= made.vocabulary <= MOST_WORDS:
        raise InputError(f"The vocabulary of a made corpus has between 1 and {MOST_WORDS:,} words.")
    if not 0.0 <= made.exponent <= 4.0:
        raise InputError("The exponent of Zipf's law must lie between 0 and 4.")
    if not 2 <= made.classes <= 1000:
        raise InputError("A made corpus has between 2 and 1,000 classes.")
    if not 0 <= made.seed < 2**63:
        raise InputError("The seed must lie between 0 and 2^63 − 1.")


def plant(made: SyntheticCorpus) -> Planted:
    """The words that decide: about `INFORMATIVE`, their classes in turn, their weights drawn."""
    random = np.random.Generator(np.random.Philox(key=made.seed))
    last = min(LAST_INFORMATIVE, made.vocabulary)
    first = min(FIRST_INFORMATIVE, -(-last // 4))
    strata = (np.arange(INFORMATIVE) + random.random(INFORMATIVE)) / INFORMATIVE
    ranks = np.unique(np.floor(np.exp(np.log(first) + strata * np.log(last / first))).astype(np.int64))
    weights = LEAST_WEIGHT + (MOST_WEIGHT - LEAST_WEIGHT) * random.random(ranks.size)
    return Planted(ranks, np.arange(ranks.size, dtype=np.int64) % made.classes, weights)


def describe(made: SyntheticCorpus, planted: Planted) -> dict[str, Any]:
    """What `planted.json` says: the parameters, and each word that decides with its rank, class and weight."""
    rows = zip(planted.ranks.tolist(), planted.classes.tolist(), planted.weights.tolist(), strict=True)
    words = [
        {"word": spell(rank).tobytes().decode(), "rank": rank, "class": str(label), "weight": weight}
        for rank, label, weight in rows
    ]
    return {**made._asdict(), "planted": words}


def write_file(made: SyntheticCorpus, planted: Planted, file: int, path: Location) -> int:
    """Write one file, unless it is there; gives about its size in bytes."""
    size = -(-made.bytes // made.files)
    if path.exists():
        return size
    top = int(planted.ranks[-1])
    class_of, weight_of = np.full(top, -1, np.int64), np.zeros(top)
    class_of[planted.ranks - 1], weight_of[planted.ranks - 1] = planted.classes, planted.weights
    buffer = np.empty(min(BUFFER_BYTES, size) + ROOM, np.uint8)
    document = written = 0
    with committed(path) as temporary, temporary.open("wb") as sink:
        while written < size:
            documents, filled = make_documents(
                made.seed, file, document, size - written, made.vocabulary, float(made.exponent),
                class_of, weight_of, made.classes, buffer,
            )  # fmt: skip
            sink.write(buffer[:filled].data)
            document, written = document + documents, written + filled
    return written
