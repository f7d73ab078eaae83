"""A synthetic corpus of any size: JSON lines whose words follow Zipf's law and whose labels depend on a few words.

A folder, local or remote::

    planted.json           the parameters, and the weights behind the labels
    text/part-00000.jsonl  file f depends only on the seed, f and its size; a smaller file is a prefix of a larger one

Files are written atomically, and existing ones are kept, so a run that was killed resumes.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.core.logs import ProgressCallback
from sparseoco.kernels.synthetic_text import ROOM, make_documents, spell
from sparseoco.storage.commit import commit_json, committed, read_json
from sparseoco.storage.locations import Location
from sparseoco.storage.locks import FolderKind, exclusive_lock

FILE_BYTES = 256 << 20
BUFFER_BYTES = 8 << 20
MAX_WORDS = 100 + 100**2 + 100**3 + 100**4  # up to four syllables
INFORMATIVE = 200  # words with a weight, spread evenly over the logarithm of these ranks
FIRST_INFORMATIVE, LAST_INFORMATIVE = 30, 30_000
MIN_WEIGHT, MAX_WEIGHT = 0.5, 1.5


class SyntheticCorpus(NamedTuple):
    """The parameters of a synthetic corpus.

    Parameters
    ----------
    bytes : int
        Size in total; each of the files has `bytes` / `files`, rounded up to the end of a document.
    files : int
        Number of files.
    vocabulary : int
        N different words, of ranks 1 … N.
    exponent : float
        s of Zipf's law, P(rank r) ∝ about (r + ½)^(−s).
    classes : int
        Number of classes.
    seed : int
        Seed of all draws.
    """

    bytes: int
    files: int
    vocabulary: int = 1_000_000
    exponent: float = 1.1
    classes: int = 2
    seed: int = 0


CORPUS_FOLDER = FolderKind("a synthetic corpus", ("planted.json",), ("text",))


class Planted(NamedTuple):
    """The weights behind the labels: the words of these ranks (int64, increasing) have a weight for one class each."""

    ranks: NDArray[np.int64]
    classes: NDArray[np.int64]
    weights: NDArray[np.float64]


def generate(
    corpus: SyntheticCorpus, out: Location, *, threads: int | None = None, progress: ProgressCallback | None = None
) -> list[Location]:
    """Write a synthetic corpus.

    Parameters
    ----------
    corpus : SyntheticCorpus
        Its parameters.
    out : Location
        The target folder.
    threads : int, optional
        By default as many as there are processors.
    progress : callable, optional
        Called with the step, the bytes so far and their total.

    Returns
    -------
    list of Location
        The files of the corpus.

    Raises
    ------
    InputError
        For invalid parameters, and a folder with another corpus.
    StorageError
        If a file cannot be written.
    """
    check(corpus)
    planted = plant(corpus)
    paths: list[Location] = [out / "text" / f"part-{file:05}.jsonl" for file in range(corpus.files)]
    described = describe(corpus, planted)
    with exclusive_lock(out, CORPUS_FOLDER):
        if (out / "planted.json").exists():
            if read_json(out / "planted.json") != described:
                raise InputError(
                    f"{out} has another synthetic corpus: choose another folder, or repeat its options.",
                    code="other-corpus",
                )
        else:
            commit_json(out / "planted.json", described)
        for path in (out / "text").glob(".part-*.tmp"):  # of a run that was killed
            path.unlink(missing_ok=True)
        done = 0
        with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0)), thread_name_prefix="generate") as pool:
            written = [pool.submit(write_file, corpus, planted, file, path) for file, path in enumerate(paths)]
            try:
                for future in written:
                    done += future.result()
                    if progress is not None:
                        progress("generate", min(done, corpus.bytes), corpus.bytes)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return paths


def check(corpus: SyntheticCorpus) -> None:
    """Raises `InputError` for invalid parameters."""
    for name, valid, expected in (
        ("bytes", corpus.bytes >= 1, "at least 1"),
        ("files", 1 <= corpus.files <= 100_000, "between 1 and 100,000"),
        ("vocabulary", 1 <= corpus.vocabulary <= MAX_WORDS, f"between 1 and {MAX_WORDS:,}"),
        ("exponent", 0.0 <= corpus.exponent <= 4.0, "between 0 and 4"),
        ("classes", 2 <= corpus.classes <= 1000, "between 2 and 1,000"),
        ("seed", 0 <= corpus.seed < 2**63, "between 0 and 2^63 − 1"),
    ):
        if not valid:
            raise InputError(
                f"{name}={getattr(corpus, name)} of a synthetic corpus must be {expected}.", code="invalid-option"
            )


def plant(corpus: SyntheticCorpus) -> Planted:
    """About `INFORMATIVE` words with weights, drawn at random, for the classes in turn."""
    random = np.random.Generator(np.random.Philox(key=corpus.seed))
    last = min(LAST_INFORMATIVE, corpus.vocabulary)
    first = min(FIRST_INFORMATIVE, -(-last // 4))
    strata = (np.arange(INFORMATIVE) + random.random(INFORMATIVE)) / INFORMATIVE
    ranks = np.unique(np.floor(np.exp(np.log(first) + strata * np.log(last / first))).astype(np.int64))
    weights = MIN_WEIGHT + (MAX_WEIGHT - MIN_WEIGHT) * random.random(ranks.size)
    return Planted(ranks, np.arange(ranks.size, dtype=np.int64) % corpus.classes, weights)


def describe(corpus: SyntheticCorpus, planted: Planted) -> dict[str, Any]:
    """The content of `planted.json`: the parameters, and each weighted word with its rank, class and weight."""
    rows = zip(planted.ranks.tolist(), planted.classes.tolist(), planted.weights.tolist(), strict=True)
    words = [
        {"word": spell(rank).tobytes().decode(), "rank": rank, "class": str(label), "weight": weight}
        for rank, label, weight in rows
    ]
    return {**corpus._asdict(), "planted": words}


def write_file(corpus: SyntheticCorpus, planted: Planted, file: int, path: Location) -> int:
    """Write one file unless it exists, and return its approximate size in bytes."""
    size = -(-corpus.bytes // corpus.files)
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
                corpus.seed, file, document, size - written, corpus.vocabulary, float(corpus.exponent),
                class_of, weight_of, corpus.classes, buffer,
            )  # fmt: skip
            sink.write(buffer[:filled].data)
            document, written = document + documents, written + filled
    return written
