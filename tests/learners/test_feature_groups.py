"""Groups of features: the dense recursion, the bits, the optimum, and what a model is trained on."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco import Model, offline_optimum
from sparseoco.core.errors import DamagedError
from sparseoco.kernels import groups as kernels
from sparseoco.kernels.order import epoch_rows
from sparseoco.learners.losses import LOSSES
from sparseoco.storage.commit import read_json
from sparseoco.storage.tables import read_checkpoint, write_checkpoint
from sparseoco.store.shards import Store, read_shards
from sparseoco.training.learner import Learner
from tests.oracles.losses import SLOPES, VALUES
from tests.oracles.proximal import eta
from tests.support.commands import Cli
from tests.support.errors import raises_code
from tests.support.stores import make_store

FEATURES, ROWS = 11, 40
GROUPS = np.array([3, 3, 0, 7, 0, 0, 7, 3, 5, 0, 7])


def prox(W: np.ndarray, groups: np.ndarray, chosen: Any, a: float) -> np.ndarray:
    """Each of the chosen groups v: v·max(0, 1 − a/‖v‖)."""
    W = W.copy()
    for group in chosen:
        v = W[groups == group]
        norm = np.linalg.norm(v)
        W[groups == group] = v * (1 - a / norm) if norm > a else 0.0
    return W


def recursion(
    name: str, X: np.ndarray, Y: np.ndarray, loss: str, weights: np.ndarray, groups: np.ndarray, p: dict[str, Any]
) -> Iterator[np.ndarray]:
    """Togari and Yamashita 2016, Algorithms 2 to 4 for blocks of variables, one prox at a time; Theorem 2's mean."""
    W = total = np.zeros((X.shape[1], Y.shape[1]))
    K, lam, updated = p.get("K", 1), p["lam"], dict.fromkeys(groups, 0)
    for t in range(1, len(X) + 1):
        x, total = X[t - 1], total + W
        slopes = weights[t - 1] * np.array([SLOPES[loss](z, y) for z, y in zip(x @ W, Y[t - 1], strict=True)])
        g = np.outer(x, slopes)
        W = W - eta(p["eta0"], t, p["step"]) * g
        if name == "cl-fobos":
            for group in {group for group, own in zip(groups, g, strict=True) if own.any()}:
                for j in range(updated[group] + 1, t + 1):
                    W = prox(W, groups, [group], lam * eta(p["eta0"], j, p["step"]))
                updated[group] = t
        elif t % K == 0:
            for j in range(t - K + 1, t + 1):
                W = prox(W, groups, set(groups), lam * eta(p["eta0"], j, p["step"]))
        yield total / t if p.get("average") == "iterates" else W


def drawn(seed: int, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.integers(1, 4, (ROWS, FEATURES)) * (rng.random((ROWS, FEATURES)) < 0.35)
    return X.astype(float), rng.integers(0, classes, ROWS), rng.choice([0.0, 0.5, 1.0, 2.0], ROWS)


def signs(labels: np.ndarray, classes: int) -> np.ndarray:
    return 2.0 * (labels[:, None] == (np.arange(classes) if classes > 2 else np.ones(1))) - 1


@pytest.mark.formulas
@settings(max_examples=60)
@given(
    name=st.sampled_from(["fobos", "l-fobos", "cl-fobos", "cl-fobos mean"]),
    loss=st.sampled_from(["logistic", "hinge"]),
    classes=st.sampled_from([2, 3]),
    step=st.sampled_from(["sqrt", "constant", "inverse"]),
    lam=st.sampled_from([0.0, 0.01, 0.1, 0.4]),
    scale=st.sampled_from([None, 0.5]),
    seed=st.integers(0, 10**6),
)
def test_the_dense_recursion(
    name: str, loss: str, classes: int, step: str, lam: float, scale: float | None, seed: int
) -> None:
    """After every row; with `scale` factors of groups are moved into the weights from one half on."""
    name, _, mean = name.partition(" ")
    parameters: dict[str, Any] = {"eta0": 0.4, "lam": lam, "step": step}
    parameters |= {"K": 5} if name == "l-fobos" else {"average": "iterates"} if mean else {}
    X, labels, weights = drawn(seed, classes)
    options = {"loss": loss, "n_features": FEATURES, "n_classes": classes, "feature_groups": GROUPS}
    learner = Learner(name, penalty="group", grid=parameters, **options)
    steps = recursion(name, X, signs(labels, classes), loss, weights, GROUPS, parameters)
    with pytest.MonkeyPatch.context() as patch:
        if scale is not None:
            patch.setattr(kernels, "SMALLEST", scale)
            patch.setattr(kernels, "SMALLEST_AVERAGED", scale)
        for t, expected in enumerate(steps):
            learner.partial_fit(sp.csr_matrix(X[t : t + 1]), labels[t : t + 1], weights[t : t + 1])
            np.testing.assert_allclose(learner.weights(), expected, rtol=1e-9, atol=1e-11)
    if not mean:
        norms = [np.linalg.norm(expected[group == GROUPS]) for group in np.unique(GROUPS)]
        assert learner.measure().penalty[0] == pytest.approx(lam * sum(norms), rel=1e-9, abs=1e-12)


def bits(learner: Learner) -> tuple[bytes, ...]:
    progress = learner.progress
    return learner.weights().tobytes(), learner.intercepts().tobytes(), progress.loss_sum.tobytes()


@pytest.mark.parametrize(("name", "classes"), [("fobos", 3), ("cl-fobos", 2)])
def test_bits_and_the_file(name: str, classes: int, tmp_path: Path) -> None:
    """Whatever the calls, the company and a file in between; weights that are given are had; margins are those of
    reading; a file with a broken list is refused."""
    X, labels, weights = drawn(2, classes)
    rows = sp.csr_matrix(X)
    grid: dict[str, Any] = {"lam": [0.0, 0.05, 1.5], "eta0": [0.5]}
    grid |= {"average": ["none", "iterates"]} if name == "cl-fobos" else {}
    options: dict[str, Any] = {"n_features": FEATURES, "n_classes": classes, "feature_groups": GROUPS}
    options |= {"penalty": "group", "dtype": "float32", "intercept": True}
    whole = Learner(name, grid=grid, **options).partial_fit(rows, labels, weights)
    assert (whole.weights() == 0).any()
    chosen, path = [2, 1], tmp_path / "learner"
    parts = Learner(name, grid=grid, **options)
    for first in range(0, ROWS, 7):
        part = slice(first, first + 7)
        parts.partial_fit(rows[part], labels[part], weights[part])
        parts.decision_function(rows[part])
        parts.save(path)
        parts = Learner.load(path)
    assert bits(parts) == bits(whole)
    alone = Learner(name, grid=[whole.configurations[i] for i in chosen], **options).partial_fit(rows, labels, weights)
    assert bits(whole.select(chosen)) == bits(alone)
    assert (Learner.load(path).description, len(whole.description)) == (whole.description, 11)

    out = np.empty((1, len(whole.configurations), whole.n_outputs), np.float32)
    csr = rows[:1].indptr, rows[:1].indices, rows[:1].data
    read = whole.margins(*csr)
    whole.learn_rows(*csr, labels[:1], margins_out=out)
    last = [i for i, entry in enumerate(whole.configurations) if entry.get("average", "none") == "none"]
    assert out[:, last].tobytes() == read[:, last].tobytes()

    started = whole.new().start_from(whole.weights(), 40, whole.intercepts())
    assert bits(started)[:2] == bits(whole)[:2]
    with raises_code("more-features"):
        Learner.load(path, n_features=FEATURES + 1)
    with read_checkpoint(path) as (described, read_array):
        arrays = {array: read_array(array) for array, _ in whole._arrays()}
    for at in (0, 99):
        broken = arrays | {"0.next": np.full_like(arrays["0.next"], at)}
        write_checkpoint(path, described, broken.items())
        with raises_code("corrupt-file", kind=DamagedError):
            Learner.load(path)


@pytest.mark.formulas
@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("unsupported-combination", {"algorithm": "fobos", "penalty": "l1"}),
        ("unsupported-combination", {"algorithm": "rda"}),
        ("unsupported-combination", {"grid": {"model": "truncated"}}),
        ("invalid-groups", {"feature_groups": GROUPS[1:]}),
        ("invalid-groups", {"feature_groups": GROUPS / 2}),
    ],
)
def test_groups_that_are_refused(code: str, options: dict[str, Any]) -> None:
    with raises_code(code):
        Learner(
            **{"algorithm": "fobos", "penalty": "group", "n_features": FEATURES, "feature_groups": GROUPS} | options
        )


@pytest.mark.parametrize(("loss", "classes"), [("logistic", 3), ("squared_hinge", 2), ("squared", 2)])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_optimum_satisfies_its_conditions(loss: str, classes: int, intercept: bool) -> None:
    """Of every group: the gradient is −α·w_G/‖w_G‖, or no longer than α where w_G = 0."""
    X, labels, weights = drawn(3, classes)
    y = X @ np.linspace(-1, 1, FEATURES) + 3 if loss == "squared" else labels
    targets = y[:, None] if loss == "squared" else signs(labels, classes)
    alpha = (200.0, 20.0) if loss == "squared" else (10.0, 0.5)
    own = {"sample_weight": weights, "fit_intercept": intercept, "tol": 1e-11, "n_classes": classes}
    found = offline_optimum(sp.csr_matrix(X), y, loss=loss, alpha=alpha, penalty="group", groups=GROUPS, **own)
    assert found.converged.all()
    for a, W, b in zip(alpha, found.weights.reshape(2, FEATURES, -1), found.intercept.reshape(2, -1), strict=True):
        Z = X @ W + b
        slope: Any = LOSSES[loss].slope
        slopes = weights[:, None] * np.vectorize(slope)(Z, targets)
        assert not intercept or np.abs(slopes.sum(axis=0)).max() < 1e-3
        for group in np.unique(GROUPS):
            own = group == GROUPS
            w, g = W[own], (X.T @ slopes)[own]
            norm = np.linalg.norm(w)
            if norm > 0:
                np.testing.assert_allclose(g, -a * w / norm, atol=2e-3 * a)
            else:
                assert np.linalg.norm(g) <= a * (1 + 1e-3)
    assert (found.weights == 0).any()
    with raises_code("unsupported-combination"):
        offline_optimum(sp.csr_matrix(X), labels, loss="hinge", penalty="group")


def test_the_groups_of_a_run(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a table: the model and the regret are those of the learner and the optimum, and the groups are counted."""
    monkeypatch.chdir(tmp_path)
    store = Store.open(make_store(Path("store"), rows=90, features=12))
    terms = store.vocabulary()["term"].to_pylist()
    named = dict(zip(terms[:9], "aabbbccca", strict=True)) | {"elsewhere": "d"}
    Path("groups.csv").write_text("group,term\n" + "".join(f"{group},{term}\n" for term, group in named.items()))
    given = "--penalty", "group", "--feature-groups", "groups.csv", "--loss", "logistic", "--tf", "count", "--idf"
    given = *given, "false", "--norm", "none", "--epochs", 1, "--dtype", "float64"
    grid = "--algorithm", "fobos", "--grid", "lam=0.05", "--grid", "eta0=0.5", "--no-intercept"
    printed = cli("search", "store", "--out", "run", *grid, "--folds", 2, *given).out
    kept = int(
        re.search(r"groups: (\d+) of 6 groups of features have a weight; 3 groups are of one feature", printed)[1]
    )
    groups = np.array(["abc".find(named.get(term, "")) if term in named else 3 + i for i, term in enumerate(terms)])
    order = epoch_rows(0, 1, True, 90, 0, 90, -1, 1)
    X, y = read_shards(store.folder)[0].toarray()[order].astype(float), store.labels()[order]
    steps = recursion(
        "fobos", X, signs(y, 2), "logistic", np.ones(90), groups, {"lam": 0.05, "eta0": 0.5, "step": "sqrt"}
    )
    W = [np.zeros((12, 1)), *steps]
    model = Model("run/model")
    weights = np.zeros(12)
    weights[model.table["feature_id"].to_numpy()] = model.table["weight"].to_numpy()
    np.testing.assert_allclose(weights, W[-1][:, 0], rtol=1e-9)
    norms = [[np.linalg.norm(w[groups == group]) for group in np.unique(groups)] for w in W]
    assert kept == np.count_nonzero(norms[-1])
    assert 0 < kept < 6

    cli("regret", "run", "--marks", 3, "--tol", 1e-6)
    (*_, last) = pq.read_table("run/regret/regret.parquet").to_pylist()
    losses = [VALUES["logistic"](x @ w[:, 0], t) for x, w, t in zip(X, W, 2 * y - 1, strict=False)]
    assert (last["T"], last["exact"]) == (90, True)
    assert last["learner_loss"] == pytest.approx(sum(losses) + 0.05 * np.sum(norms[:-1]), rel=1e-9)
    best = offline_optimum(sp.csr_matrix(X), y, alpha=90 * 0.05, penalty="group", groups=groups)
    assert last["optimum"] == pytest.approx(float(best.objective), rel=1e-5)
    assert 0 < last["regret"] < last["bound"]

    relative = "--algorithm", "fobos", "--grid", "lam=relative:1.01,0.7", "--grid", "eta0=1"
    cli("search", "store", "--out", "other", *relative, "--folds", 2, "--no-intercept", *given)
    g = X.T @ (0.5 - y)
    largest = max(np.linalg.norm(g[groups == group]) for group in groups) / 90
    found = read_json(Path("other/run.json"))["search"]["lambda_max"]
    assert found["counts"]["fobos"] == pytest.approx(largest, rel=1e-9)


REFUSED = {
    "unsupported-combination": ("field", ""),
    "invalid-table": ("groups.csv", "term,kind\na,b\n"),
    "no-common-features": ("groups.csv", "term,group\nelsewhere,b\n"),
    "missing-file": ("nothing.csv", ""),
}


@pytest.mark.parametrize("code", REFUSED)
def test_groups_of_a_store_that_are_refused(code: str, tmp_path: Path, cli: Cli) -> None:
    value, table = REFUSED[code]
    store = make_store(tmp_path / "store", rows=20, features=5)
    if table:
        (tmp_path / value).write_text(table)
    named = value if value == "field" else tmp_path / value
    given = "--algorithm", "fobos", "--penalty", "group", "--feature-groups", named
    assert f"[{code}]" in cli("train", store, "--out", tmp_path / "model", *given, code=None).err
