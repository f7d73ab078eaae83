"""The examples run as their pages say."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from sparseoco.pipeline import demo
from tests.benchmarks.corpora import corpus

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def invariance() -> ModuleType:
    spec = importlib.util.spec_from_file_location("invariance", EXAMPLES / "invariance.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_our_weights_are_the_same_bits_for_every_cut(
    invariance: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "LIBRARIES", ("click", "fsspec"))
    invariance.main([])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("sparseoco fobos")]
    assert len(lines) == 1 + len(invariance.CHUNKS)
    assert len({tuple(line.split()[-3:]) for line in lines}) == 1


@pytest.mark.corpora
def test_the_figures_of_the_page(invariance: ModuleType) -> None:
    stream = invariance.read(corpus("imdb/imdb_50k.jsonl.gz"))
    assert np.count_nonzero(stream.rare) == 23_771
    for chunk in (None, *invariance.CHUNKS):
        assert np.count_nonzero(invariance.train_sparseoco(stream, chunk)[stream.rare]) == 7_447
