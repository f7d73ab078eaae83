"""An exported pipeline of scikit-learn has the decisions, margins and probabilities of the model."""

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.pipeline import Pipeline

from sparseoco import Model
from sparseoco.estimators import export
from sparseoco.estimators.export import export_onnx, export_sklearn, sklearn_pipeline, token_pattern
from sparseoco.store.shards import Store
from sparseoco.store.weighting import COUNTS, TFIDF, Weighting
from sparseoco.text.options import TOKEN_PATTERNS, TokenizerOptions
from sparseoco.training.models import write_model
from tests.support.commands import Cli
from tests.support.errors import raises_code
from tests.support.ingests import ingest_bytes, jsonl, random_texts
from tests.support.models import model_with
from tests.support.stores import WEIGHTINGS

SPARSE = "scipy.sparse._csr.csr_matrix"
ALPHABET = "ab AB1_ .,'’-\nΣσςİıéÉ٣一\u0301\u00a0𝔘\x00"
random = np.random.default_rng(0)
TEXTS = [*random_texts(40), *("".join(random.choice(list(ALPHABET), 60)) for _ in range(40))]
NEW = [*random_texts(20, seed=1), *TEXTS[-20:], "", "unknown words alpha", "don't rock'n'roll well-known ab"]
TOKENIZERS: list[dict[str, Any]] = [
    {"ngram_range": (1, 3)},
    {"ngram_range": (2, 2), "lowercase": False},
    {"strip_accents": "unicode", "stop_words": ["the", "alpha", "Σ", "not a token"], "ngram_range": (1, 2)},
    {"strip_accents": "ascii", "token_pattern": "short_words", "max_token_length": 4},
    {"stop_words": "english", "max_token_length": 5},
    {"token_pattern": "apostrophes", "ngram_range": (1, 2)},
    {"token_pattern": "hyphens", "max_token_length": 4},
    {"analyzer": "char", "ngram_range": (1, 3)},
    {"analyzer": "char_wb", "ngram_range": (2, 4), "strip_accents": "unicode"},
]
LABELS = {"two": "pn", "three": "abc", "multi": ("a", "a,b", "", "b,c", "c"), "numbers": range(5)}


def ingested(folder: Path, kind: str = "two", **options: Any) -> Store:
    several = {"labels": kind} if kind in ("multi", "numbers") else {}
    names = [[name for name in label.split(",") if name] if kind == "multi" else label for label in LABELS[kind]]
    data = jsonl(TEXTS, label=lambda k: names[k % len(names)])
    ingest_bytes(folder, "texts.jsonl", data, **several, **options)
    return Store.open(folder / "out")


def written(folder: Path, store: Store, weighting: Weighting = TFIDF, **description: Any) -> Model:
    """A model of random weights, every third of which is 0."""
    outputs = max(1, len(store.classes) if len(store.classes) > 2 or store.manifest.labels.kind == "multi" else 1)
    draw = np.random.default_rng(3)
    weights, intercepts = draw.normal(size=(store.n_features, outputs)), draw.normal(size=outputs)
    weights[::3] = 0.0
    given = {"algorithm": "none", "parameters": {}, "weighting": weighting.model_dump()} | description
    write_model(folder, weights, store, given, [], intercepts=intercepts)
    return Model(folder)


def exported(model: Model, path: Path) -> Pipeline:
    """The pipeline as it is read back."""
    import skops.io  # in a second, which only these tests should take

    export_sklearn(model, path)
    several = model.outputs > 1
    assert skops.io.get_untrusted_types(file=path) == ([SPARSE] if several else [])
    return skops.io.load(path, trusted=[SPARSE] if several else [])


def check_margins(pipeline: Pipeline, model: Model, texts: list[str]) -> None:
    margins = model.margins(texts)
    np.testing.assert_allclose(pipeline.decision_function(texts), margins[:, 0], rtol=1e-12, atol=1e-12)
    assert pipeline.predict(texts).tolist() == model.predict(texts)


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=str)
def test_any_text_has_the_models_margins(tmp_path_factory: pytest.TempPathFactory, tokenizer: dict[str, Any]) -> None:
    folder = tmp_path_factory.mktemp("tokenizer")
    model = written(folder / "model", ingested(folder, **tokenizer))
    pipeline = exported(model, folder / "model.skops")
    check_margins(pipeline, model, NEW)

    @settings(max_examples=12)
    @given(st.lists(st.text(st.sampled_from(ALPHABET) | st.characters(exclude_categories=["Cs"])), min_size=1))
    def check(texts: list[str]) -> None:
        check_margins(pipeline, model, texts)

    check()


@settings(max_examples=150)
@given(
    st.text(st.sampled_from("ab_é'’-‐. ")),
    st.sampled_from(sorted(set(TOKEN_PATTERNS) - {"numbers"})),
    st.integers(1, 6),
)
def test_patterns_of_tokens_that_are_not_too_long(text: str, name: Any, longest: int) -> None:
    assume(longest >= TOKEN_PATTERNS[name].shortest)
    options = TokenizerOptions(token_pattern=name, max_token_length=longest)
    kept = [token for token in re.findall(TOKEN_PATTERNS[name].regex, text) if len(token) <= longest]
    assert re.findall(token_pattern(options), text) == kept


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Store]:
    return {kind: ingested(tmp_path_factory.mktemp(kind), kind, min_df=2) for kind in LABELS}


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=lambda weighting: weighting.label)
def test_weightings(stores: dict[str, Store], tmp_path: Path, weighting: Weighting) -> None:
    model = written(tmp_path / "model", stores["two"], weighting)
    pipeline = exported(model, tmp_path / "model.skops")
    check_margins(pipeline, model, NEW)
    counted = stores["two"].n_features if weighting.norm == "l2" else len(model.feature_ids)
    assert len(pipeline[0].vocabulary) == counted
    assert ("values" in pipeline.named_steps) == (weighting.norm == "l2" or weighting.idf or weighting.tf == "log")


def sigmoids(*slopes: float) -> dict[str, Any]:
    return {"method": "sigmoid", "slopes": slopes, "offsets": [0.5 - k for k in range(len(slopes))], "rows": 9}


def temperature(slope: float) -> dict[str, Any]:
    return {"method": "temperature", "slopes": [slope], "rows": 9}


DECISIONS = [
    ("two", "hinge", None),
    ("two", "logistic", None),
    ("two", "hinge", sigmoids(1.7)),
    ("two", "hinge", sigmoids(0.0)),
    ("multi", "hinge", None),
    ("multi", "logistic", None),
    ("multi", "hinge", sigmoids(1.7, 0.2, 3.0)),
    ("multi", "logistic", sigmoids(1.7, 0.0, 3.0)),
    ("three", "hinge", None),
    ("three", "logistic", None),
    ("three", "softmax", None),
    ("three", "hinge", temperature(0.4)),
    ("three", "hinge", temperature(0.0)),
    ("numbers", "squared", None),
]
CASES = [(*case, False) for case in DECISIONS] + [(*case, True) for case in DECISIONS if case[0] in ("two", "multi")]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_decisions_and_probabilities(stores: dict[str, Store], tmp_path: Path, case: Any) -> None:
    """With counts or weights in turn, whose steps come before the decision."""
    kind, loss, calibration, with_thresholds = case
    weighting = (COUNTS, TFIDF)[CASES.index(case) % 2]
    store, description = stores[kind], {"loss": loss, "calibration": calibration}
    if with_thresholds:
        margins = written(tmp_path / "model", store, weighting, **description).margins(NEW)
        cuts = np.quantile(margins, 0.7, axis=0)
        cuts[-1] = margins[0, -1]  # of a text, which does not exceed it
        rates = {"precision": 0.5, "recall": 0.5, "f1": 0.5, "share": 0.5}
        outputs = [{"margin": cut, **rates} for cut in cuts.tolist()]
        description["threshold"] = {"rule": {"rule": "f1"}, "outputs": outputs, "rows": 9}
    model = written(tmp_path / "model", store, weighting, **description)
    pipeline = exported(model, tmp_path / "model.skops")
    predictions = pipeline.predict(NEW)
    if kind == "numbers":
        np.testing.assert_allclose(predictions, model.predict(NEW), rtol=1e-12)
    elif kind == "multi":
        assert pipeline[-1].target_names_ == model.classes
        np.testing.assert_array_equal(predictions, model.labels(model.margins(NEW)))
    else:
        assert predictions.tolist() == model.predict(NEW)
        assert pipeline.classes_.tolist() == model.classes
    flat = min(calibration["slopes"] if calibration else [1]) == 0
    assert hasattr(pipeline, "predict_proba") == (model.has_probabilities and not flat)
    if kind == "multi" and calibration and flat:
        found = [hasattr(estimator, "predict_proba") for estimator in pipeline[-1].estimators_]
        assert found == [slope > 0 for slope in calibration["slopes"]]
        values = pipeline[:-1].transform(NEW)
        np.testing.assert_allclose(
            pipeline[-1].estimators_[2].predict_proba(values)[:, 1], model.predict_proba(NEW)[:, 2], rtol=1e-12
        )
    if hasattr(pipeline, "predict_proba"):
        found = pipeline.predict_proba(NEW)
        found = np.stack([own[:, 1] for own in found], axis=1) if kind == "multi" else found
        np.testing.assert_allclose(found, model.predict_proba(NEW), rtol=1e-12, atol=1e-15)


def test_the_command_says_that_probabilities_are_missing(stores: dict[str, Store], tmp_path: Path, cli: Cli) -> None:
    for slope, missing in ((0.0, True), (1.0, False)):
        written(tmp_path / "model", stores["two"], calibration=sigmoids(slope))
        out = tmp_path / "model.skops"
        assert ("predict_proba" in cli("export", tmp_path / "model", "--to", "sklearn", "--out", out).err) == missing


def test_terms_that_an_array_cannot_hold_are_a_list(tmp_path: Path) -> None:
    for name, texts in {"long": ["x" * 500 + " b1", "y1"], "nul": ["a\0", "b"]}.items():
        options = {"analyzer": "char"} if name == "nul" else {}
        ingest_bytes(tmp_path / name, "texts.jsonl", jsonl(texts), **options)
        model = written(tmp_path / name / "model", Store.open(tmp_path / name / "out"))
        pipeline = exported(model, tmp_path / name / "model.skops")
        assert isinstance(pipeline[0].vocabulary, list)
        check_margins(pipeline, model, [*texts, ""])


def test_the_page_on_serving(
    stores: dict[str, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The blocks that load a pipeline and a graph run; MLflow is not installed here, its block compiles."""
    page = (Path(__file__).parents[2] / "docs" / "operations" / "serving.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    assert ["mlflow" in block for block in blocks] == [False, False, True]
    loading, graph, _ = (compile(block, "serving.md", "exec") for block in blocks)
    model = written(tmp_path / "model", stores["two"], loss="logistic")
    export_sklearn(model, tmp_path / "model.skops")
    export_onnx(model, tmp_path / "reviews.onnx")
    monkeypatch.chdir(tmp_path)
    exec(graph, {})
    exec(loading, {})
    assert re.fullmatch(r"\['[np]' '[np]'\]\n", capsys.readouterr().out)


def test_scikit_learn_alone_predicts(stores: dict[str, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import skops.io

    model = written(tmp_path / "model", stores["two"], calibration=sigmoids(2.0))
    export_sklearn(model, tmp_path / "model.skops")
    predictions, probabilities = model.predict(NEW), model.predict_proba(NEW)
    for name in [name for name in sys.modules if name.partition(".")[0] == "sparseoco"]:
        monkeypatch.setitem(sys.modules, name, None)  # its import fails
    pipeline = skops.io.load(tmp_path / "model.skops", trusted=[])
    assert pipeline.predict(NEW).tolist() == predictions
    np.testing.assert_allclose(pipeline.predict_proba(NEW), probabilities, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("hashed-features", {"hash_bits": 8}),
        ("folded-numbers", {"token_pattern": "numbers"}),
        ("several-fields", {"fields": {"text": {"type": "text"}}}),
    ],
)
def test_what_scikit_learn_cannot_express_is_refused(tmp_path: Path, code: str, options: dict[str, Any]) -> None:
    model = written(tmp_path / "model", ingested(tmp_path, **options))
    with raises_code(code, tmp_path / "model"):
        sklearn_pipeline(model)


def test_models_of_counts_or_without_weights_are_refused(stores: dict[str, Store], tmp_path: Path) -> None:
    rows = b"".join(b"%d %d:1 7:2\n" % (k % 2, k % 5 + 1) for k in range(20))
    ingest_bytes(tmp_path / "counts", "counts.svmlight", rows, format="svmlight")
    model = written(tmp_path / "counted", Store.open(tmp_path / "counts" / "out"))
    with raises_code("counted-documents", "counted"):
        sklearn_pipeline(model)
    with raises_code("no-weights", "zero"):
        sklearn_pipeline(model_with(tmp_path / "zero", stores["two"], {}))


def test_a_missing_package_is_named(stores: dict[str, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = written(tmp_path / "model", stores["two"])
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    with raises_code("missing-package", "sparseoco[sklearn]"):
        export_sklearn(model, tmp_path / "model.skops")
    assert not (tmp_path / "model.skops").exists()
