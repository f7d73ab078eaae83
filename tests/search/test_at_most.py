"""Models with at most so many features."""

from pathlib import Path

import numpy as np
import pytest

from sparseoco import Model
from sparseoco.search.models import write_block
from sparseoco.store.shards import Store
from sparseoco.text.options import TextOptions
from sparseoco.training.block import Block, search_setting
from sparseoco.training.stream import NO_FOLD
from tests.support.searches import plain_search, site
from tests.support.stores import make_store


@pytest.mark.parametrize("classes", [2, 3])
def test_the_strongest_features_are_kept(tmp_path: Path, classes: int) -> None:
    store = Store.open(make_store(tmp_path / "store", features=60, classes=classes))
    store.manifest.options.update(TextOptions().plain())
    options = plain_search(algorithms={"adagrad": {"lam": [1e-5], "eta": [0.3]}})
    block = Block.of(search_setting(options, store, NO_FOLD), options.configurations())

    def weights(at_most: int | None) -> dict[tuple[int, str], float]:
        rules = {} if at_most is None else {"at_most": at_most}
        write_block(site(store, tmp_path), block, tmp_path / "model", rules)
        model = Model(tmp_path / "model")
        assert at_most is None or model.feature_ids.size <= at_most
        pruned = model.feature_ids.size == at_most
        assert (tmp_path / "model" / "learner.npz").exists() != pruned
        columns = (model.table[name].to_pylist() for name in ("feature_id", "class", "weight"))
        return {(feature, of): weight for feature, of, weight in zip(*columns, strict=True)}

    every, few, fewer = weights(None), weights(20), weights(5)
    assert fewer.items() <= few.items() <= every.items()
    documents = store.document_frequencies()
    strength = np.zeros(60)
    for (feature, _), weight in every.items():
        strength[feature] += weight**2 * documents[feature]
    assert {feature for feature, _ in fewer} == set(np.argsort(-strength)[:5].tolist())
    assert weights(1000) == every
