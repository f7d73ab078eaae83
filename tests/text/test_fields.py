"""Fields equal a ColumnTransformer of CountVectorizer, OneHotEncoder, numbers and KBinsDiscretizer."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer, OneHotEncoder

from sparseoco import Model
from sparseoco.pipeline.evaluation import BATCH_LINES, text_batches
from sparseoco.store.manifest import latest_manifest
from sparseoco.store.shards import Store, read_shards
from sparseoco.store.terms import grouped_features, increment_weights, term_weights
from sparseoco.store.weighting import TFIDF, Weighting
from sparseoco.text.counting import bin_names
from sparseoco.text.ingest import ingest
from sparseoco.text.options import NumberField, TextOptions
from sparseoco.text.readers import ReadOutcome, read_documents
from sparseoco.training.models import write_model
from tests.support.commands import Cli
from tests.support.count_vectorizer import ranked, tfidf
from tests.support.errors import raises_code
from tests.support.ingests import ingest_bytes

# ----------------------------------------------------------------------------------------------------------------------
# Fields equal a ColumnTransformer of CountVectorizer, OneHotEncoder, numbers and KBinsDiscretizer.


FIELDS: dict[str, Any] = {
    "title": {"type": "text", "ngram_range": [1, 2], "token_pattern": "short_words"},
    "body": {"type": "text", "stop_words": ["the"]},
    "code": {"type": "text", "analyzer": "char_wb", "ngram_range": [2, 3]},
    "words": {"type": "text", "field": "code"},
    "domain": {"type": "category"},
    "price": {"type": "number", "transform": "bins", "bins": 4},
    "stars": {"type": "number"},
    "views": {"type": "number", "transform": "log"},
}
TEXTS = {
    "title": CountVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b"),
    "body": CountVectorizer(stop_words=["the"]),
    "code": CountVectorizer(analyzer="char_wb", ngram_range=(2, 3)),
    "words": CountVectorizer(),
}
READ = [field.get("field", name) for name, field in FIELDS.items()]
WORDS = ["the", "Good", "movie", "price", "été", "a", "B", "x", "domain", "10", "title"]


def table(seed: int, rows: int = 60) -> pd.DataFrame:
    """A random table of records; None, or NaN, for a missing value."""
    random = np.random.default_rng(seed)

    def text(most: int) -> str | None:
        return None if random.random() < 0.1 else " ".join(random.choice(WORDS, random.integers(1, most)))

    def number(values: Any) -> list[float]:
        return np.where(random.random(rows) < 0.1, np.nan, values).tolist()

    columns = {
        "label": random.choice(["n", "p"], rows).tolist(),
        "title": [text(5) for _ in range(rows)],
        "body": [text(20) for _ in range(rows)],
        "code": [text(3) for _ in range(rows)],
        "domain": [random.choice([None, "kitchen", "a b: c=d", "été", "x", "İ\u200d𝔘\x1c'ς"]) for _ in range(rows)],
        "price": number(random.exponential(10, rows).round(1)),
        "stars": number(random.integers(-2, 6, rows)),
        "views": number(random.normal(0, 1e6, rows)),
    }
    return pd.DataFrame(columns)


def write(path: Path, frame: pd.DataFrame) -> str:
    """As JSON lines, in which a missing value is null or absent, as CSV or TSV, in which it is empty, or as Parquet."""
    if path.suffix == ".parquet":
        typed = frame.astype({"domain": "category", "stars": "Int8"})
        pq.write_table(pa.Table.from_pandas(typed, preserve_index=False), path, row_group_size=17)
        return str(path)
    if path.suffix != ".jsonl":
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",", quoting=csv.QUOTE_MINIMAL)
        return str(path)
    lines = []
    for k, row in enumerate(frame.to_dict("records")):
        values = {name: None if value is None or value != value else value for name, value in row.items()}
        if k % 2:
            values = {name: value for name, value in values.items() if value is not None}
        lines.append(json.dumps(values, ensure_ascii=k % 3 == 0) + "\n")
    path.write_text("".join(lines))
    return str(path)


def expected(fit: pd.DataFrame, frame: pd.DataFrame, text: Any = None) -> tuple[csr_matrix, list[str]]:
    """The features of `frame` by a ColumnTransformer fitted to another table; `text` follows each CountVectorizer."""
    fit, frame = (f.fillna({"title": "", "body": "", "code": ""}) for f in (fit, frame))
    cuts = KBinsDiscretizer(4, strategy="quantile", encode="ordinal").fit(fit[["price"]].dropna()).bin_edges_[0][1:-1]
    names = bin_names("price", cuts)

    def binned(column: pd.DataFrame) -> np.ndarray:
        found = np.digitize(column.to_numpy()[:, 0], cuts)
        return np.where(np.isnan(column.to_numpy()), 0.0, np.eye(len(names))[found])

    def logarithm(column: pd.DataFrame) -> np.ndarray:
        values = column.fillna(0).to_numpy()
        return np.sign(values) * np.log1p(np.abs(values))

    steps: list[Any] = [
        (name, make_pipeline(vectorizer, *([] if text is None else [text])), FIELDS[name].get("field", name))
        for name, vectorizer in TEXTS.items()
    ]
    values = sorted(set(fit["domain"].dropna()))
    steps += [
        ("domain", OneHotEncoder(categories=[values], handle_unknown="ignore"), ["domain"]),
        ("price", FunctionTransformer(binned), ["price"]),
        ("stars", FunctionTransformer(lambda column: column.fillna(0).to_numpy()), ["stars"]),
        ("views", FunctionTransformer(logarithm), ["views"]),
    ]
    fitted = ColumnTransformer(steps, sparse_threshold=1.0).fit(fit)
    terms = [f"{name}:{term}" for name in TEXTS for term in fitted.named_transformers_[name][0].get_feature_names_out()]
    return csr_matrix(fitted.transform(frame)), [*terms, *(f"domain={v}" for v in values), *names, "stars", "views"]


def missing(frame: pd.DataFrame) -> dict[str, int]:
    """The documents without a value, by field."""
    return dict(zip(FIELDS, frame[READ].isna().sum(), strict=True))


def check_equal(ours: tuple[Any, list[str]], theirs: tuple[csr_matrix, list[str]], exact: bool = True) -> None:
    """The same columns by name; a column without nonzeros may be missing."""
    matrix, names = theirs
    used = np.flatnonzero(np.bincount(matrix.tocoo().col[matrix.tocoo().data != 0], minlength=len(names)))
    matrix, names = matrix[:, used], [names[k] for k in used]
    assert sorted(ours[1]) == sorted(names)
    found = ours[0][:, [ours[1].index(name) for name in names]]
    if exact:
        assert (found != matrix).nnz == 0
    else:
        np.testing.assert_allclose(found.toarray(), matrix.toarray(), rtol=1e-13)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv", ".parquet"])
def test_counts(tmp_path: Path, suffix: str) -> None:
    """The same from shards of any size."""
    frame, found = table(0), []
    source, theirs = write(tmp_path / f"in{suffix}", frame), expected(frame, frame)
    for size in (1024, 1 << 20):
        manifest = ingest([source], tmp_path / str(size), TextOptions(fields=FIELDS), shard_bytes=size)
        found.append(read_shards(tmp_path / str(size))[1])
        check_equal(read_shards(tmp_path / str(size)), theirs)
        assert {entry.name: entry.missing for entry in manifest.fields} == missing(frame)
    assert found[0] == found[1]
    names = [re.split("[:=]", term)[0] for term in found[0]]
    assert [list(FIELDS)[group] for group in grouped_features(Store.open(tmp_path / "1024"), None)] == names


@pytest.mark.parametrize("weighting", [TFIDF, Weighting(tf="binary", idf=True)], ids=str)
def test_weights_are_of_each_text_on_its_own(tmp_path: Path, weighting: Weighting) -> None:
    frame, later = table(2), table(3)
    ingest([write(tmp_path / "in.jsonl", frame)], tmp_path / "out", TextOptions(fields=FIELDS))
    store = Store.open(tmp_path / "out")
    counts, names = read_shards(tmp_path / "out")
    values = term_weights(store, weighting).values(counts.indptr, counts.indices, counts.data)
    text = tfidf(weighting)
    weighted = csr_matrix((values, counts.indices, counts.indptr), counts.shape)
    check_equal((weighted, names), expected(frame, frame, text), exact=False)
    ones = np.ones((store.n_features, 1))
    description = {"algorithm": "none", "parameters": {}, "weighting": weighting.model_dump()}
    write_model(tmp_path / "model", ones, store, description, [])
    model = Model(tmp_path / "model")
    (documents,) = read_documents([write(tmp_path / "later.csv", later)], model.text)
    from_file = model.values(documents)
    records = later.to_dict("records")
    matrix, names_of_theirs = expected(frame, later, text)
    order = [names_of_theirs.index(name) for name in names]
    np.testing.assert_allclose(from_file.toarray(), matrix[:, order].toarray(), rtol=1e-13)
    from_records = model.values([{k: None if v != v else v for k, v in record.items()} for record in records])
    assert (from_records != from_file).nnz == 0
    assert (model.values(later) != from_file).nnz == 0


@pytest.mark.parametrize("vocabulary", ["frozen", "extend"])
def test_second_ingest(tmp_path: Path, vocabulary: Any) -> None:
    first, second = table(4, 40), table(5, 40)
    second.loc[3, ["title", "domain"]] = ["brand new words", "elsewhere"]
    options = TextOptions(fields=FIELDS)
    ingest([write(tmp_path / "a.jsonl", first)], tmp_path / "out", options)
    before = read_shards(tmp_path / "out")[1]
    manifest = ingest([write(tmp_path / "b.csv", second)], tmp_path / "out", options, vocabulary=vocabulary)
    matrix, names = read_shards(tmp_path / "out")
    assert names[: len(before)] == before
    both = pd.concat([first, second], ignore_index=True)
    theirs, every = expected(first, both)
    known = [every.index(name) for name in before]
    assert (matrix[:, : len(before)] != theirs[:, known]).nnz == 0
    assert ("title:brand new" in names) == ("domain=elsewhere" in names) == (vocabulary == "extend")
    assert {entry.name: entry.missing for entry in manifest.fields} == missing(both)
    weights = increment_weights(tmp_path / "out", manifest.version, TFIDF)
    values = csr_matrix((weights.values(matrix.indptr, matrix.indices, matrix.data), matrix.indices, matrix.indptr))
    for name in TEXTS:
        squares = values.power(2)[:, [k for k, term in enumerate(names) if term.startswith(f"{name}:")]].sum(axis=1)
        assert np.isclose(squares, np.round(squares)).all()
        assert set(np.round(np.asarray(squares)).ravel()) == {0, 1}
    others = [k for k, term in enumerate(names) if term.startswith(("domain=", "stars", "views"))]
    assert (values[:, others] != matrix[:, others]).nnz == 0
    assert manifest.fields[5].cuts == latest_manifest(tmp_path / "out").fields[5].cuts  # type: ignore[union-attr]


def test_selection_is_of_each_text(tmp_path: Path) -> None:
    """min_df, max_df and max_features are those of each CountVectorizer; other features all stay."""
    frame = table(6)
    chosen = {"min_df": 3, "max_df": 0.6, "max_features": 5}
    ingest([write(tmp_path / "in.csv", frame)], tmp_path / "out", TextOptions(fields=FIELDS, **chosen))
    names = read_shards(tmp_path / "out")[1]
    wanted = []
    for name, theirs in TEXTS.items():
        fitted = CountVectorizer(**theirs.get_params() | chosen | {"max_features": None})
        column = frame[FIELDS[name].get("field", name)].fillna("")
        counts, terms = fitted.fit_transform(column), fitted.get_feature_names_out()
        wanted += [f"{name}:{terms[k]}" for k in ranked(counts, terms, words=fitted.analyzer == "word")[:5]]
    assert sorted(name for name in names if ":" in name and "=" not in name) == sorted(wanted)
    assert {"stars", "views", "domain=kitchen"} < set(names)


def test_documents_that_are_dropped_leave_no_trace(tmp_path: Path) -> None:
    """Bins are those of the documents that stay."""
    frame = table(7, 30).assign(id=[f"d{k}" for k in range(30)])
    twice = pd.concat([frame, frame.iloc[:9].assign(price=1e6)], ignore_index=True)
    for name, rows, duplicates in (("once", frame, "error"), ("twice", twice, "first")):
        source = write(tmp_path / f"{name}.jsonl", rows)
        options = TextOptions(fields=FIELDS, duplicates=duplicates, min_df=2)
        ingest([source], tmp_path / name, options, shard_bytes=2048)
    (once, names), (twice_read, same_names) = (read_shards(tmp_path / name) for name in ("once", "twice"))
    assert same_names == names
    assert (once != twice_read).nnz == 0
    entries = [latest_manifest(tmp_path / name).fields for name in ("once", "twice")]  # type: ignore[union-attr]
    assert entries[0] == entries[1]


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.one_of(st.none(), st.floats(-5, 5).map(lambda x: round(x, 1))), min_size=2, max_size=30))
def test_any_bins(tmp_path_factory: pytest.TempPathFactory, prices: list[float | None]) -> None:
    """Quantiles may coincide, and all values be one."""
    present = [price for price in prices if price is not None]
    folder = tmp_path_factory.mktemp("bins")
    lines = "".join(json.dumps({"label": "a", "price": price}) + "\n" for price in prices)
    (folder / "in.jsonl").write_text(lines)
    options = TextOptions(fields={"price": {"type": "number", "transform": "bins", "bins": 3}})
    if not present:
        with raises_code("missing-field", "price"):
            ingest([str(folder / "in.jsonl")], folder / "out", options)
        return
    ingest([str(folder / "in.jsonl")], folder / "out", options)
    matrix, names = read_shards(folder / "out")
    edges = np.unique(np.percentile(present, np.linspace(0, 100, 4), method="averaged_inverted_cdf"))
    all_names = bin_names("price", edges[1:-1])
    found = [[names[k] for k in row.indices] for row in matrix]
    assert found == [[] if p is None else [all_names[np.digitize(p, edges[1:-1])]] for p in prices]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_vectors(tmp_path: Path, suffix: str) -> None:
    """Beside a text, from shards of any size; a vector that is missing has no feature."""
    random, frame = np.random.default_rng(0), table(8)
    vectors = [
        [float(value) for value in row]
        for row in random.normal(0, 1, (60, 4)).round(3) * (random.random((60, 4)) < 0.7)
    ]
    absent = [k % 9 == 0 for k in range(60)]
    own = frame[["label", "body"]].assign(embedding=[None if no else v for no, v in zip(absent, vectors, strict=True)])
    path = tmp_path / f"in{suffix}"
    if suffix == ".parquet":
        column = pa.array(own["embedding"].tolist(), pa.list_(pa.float64(), 4))
        pq.write_table(pa.table({"label": own["label"], "body": own["body"], "embedding": column}), path)
    else:
        write(path, own)
    fields: dict[str, Any] = {"body": {"type": "text"}, "embedding": {"type": "vector", "size": 4}}
    expected = np.where(np.array(absent)[:, None], 0.0, vectors)
    found = []
    for size in (1024, 1 << 20):
        manifest = ingest([str(path)], tmp_path / str(size), TextOptions(fields=fields), shard_bytes=size)
        matrix, names = read_shards(tmp_path / str(size))
        columns = [names.index(f"embedding={k}") for k in range(4)]
        np.testing.assert_array_equal(matrix[:, columns].toarray(), expected)
        assert manifest.fields[1].missing == sum(absent)
        found.append(names)
    assert found[0] == found[1]
    assert len(names) > 4
    options = TextOptions(fields=fields, max_bad_rows=0)
    for wrong in ([1.0], [1.0, 2.0, 3.0, "x"], "1,2,3,4", [1.0, 2.0, 3.0, float("nan")]):
        data = json.dumps({"label": "p", "body": "x", "embedding": wrong}).encode() + b"\n"
        with raises_code("malformed-record", "vector field 'embedding'"):
            ingest_bytes(tmp_path / "bad", "bad.jsonl", data, **options.model_dump(include={"fields", "max_bad_rows"}))


def test_bad_values_and_options(tmp_path: Path) -> None:
    with raises_code("malformed-record", "price", "line 1"):
        ingest_bytes(tmp_path, "bad.jsonl", b'{"label": "a", "title": "x y", "price": "cheap"}\n', fields=FIELDS)
    inherited = TextOptions(lowercase=False, fields=FIELDS)
    assert not inherited.text_fields["body"].lowercase
    assert isinstance(inherited.fields["price"], NumberField)
    assert TextOptions(**inherited.plain()) == inherited


def test_values_that_are_missing_are_reported(tmp_path: Path, cli: Cli) -> None:
    """By predict, explain and evaluate as by ingest; record numbers go on from batch to batch."""
    ingest([write(tmp_path / "in.jsonl", table(9))], tmp_path / "out", TextOptions(fields=FIELDS))
    store = Store.open(tmp_path / "out")
    model, other = tmp_path / "model", tmp_path / "other.tsv"
    write_model(model, np.ones((store.n_features, 1)), store, {"algorithm": "none", "parameters": {}}, [])
    other.write_text("label\ttitle\tstars\nn\tGood\t\np\tmovie\t2\n")
    for command in ("predict", "explain"):
        assert "body: no value in 2 of 2" in (printed := cli(command, model, other).err)
        assert "stars: no value in 1 of 2" in printed
        assert "title" not in printed
    assert "stars in 1" in cli("evaluate", model, other).out
    for value in (np.inf, np.float32(-np.inf)):
        with raises_code("malformed-record", "Record 2", "'price' is not finite"):
            Model(model).predict([{"price": 1.0}, {"price": value}])
    outcome = ReadOutcome()
    lines = [b'{"title": "Good"}\n'] * (BATCH_LINES + 1) + [b"no record\n"]
    with raises_code("malformed-record", f"Record {BATCH_LINES + 2}"):
        list(text_batches(Model(model), lines, outcome))
    list(text_batches(Model(model), lines[:-1], outcome))
    assert outcome.missing["title"] == 0
    assert outcome.missing["price"] == outcome.documents == 2 * BATCH_LINES + 1
