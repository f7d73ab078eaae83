"""Counts, vocabulary and tokens equal those of CountVectorizer for any text, options and division of the work."""

import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

from sparseoco.core.errors import InputError
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.store.shards import Store, read_shards
from sparseoco.text import counting as ngrams
from sparseoco.text import vocabulary as module
from sparseoco.text.counting import count_text
from sparseoco.text.documents import Texts
from sparseoco.text.encoding import encode_rows
from sparseoco.text.ingest import ingest
from sparseoco.text.kernels.preprocess import sort_rows
from sparseoco.text.options import TOKEN_PATTERNS, TextOptions
from sparseoco.text.readers import count_texts
from sparseoco.text.vocabulary import Vocabulary
from tests.benchmarks.corpora import corpus, records
from tests.support.count_vectorizer import PIECES, counted, ingested, nasty, same, tokenizers, vectorizer
from tests.support.errors import raises_code

# ----------------------------------------------------------------------------------------------------------------------
# Counts, vocabulary and tokens equal those of CountVectorizer for any text and any options.


DIFFICULT = [
    "ΑΣ ΣΑΣ Σ ΑΣ. ΟΔΥΣΣΕΥΣ ὈΔΥΣΣΕΎΣ_ΑΣ ΑΣ̈ Α'Σ",  # final sigma, or not
    "İstanbul IŞIK ıİiI ǅ ŉ ß ẞ ﬁ ﬀ ŐŰ",  # lower-casing that lengthens
    "e\u0301te\u0301 n\u0303 \u0301\u0301\u0301 a\u0308b",  # combining marks are no word characters
    "a\u200db\u200dcd नमस्ते ক্ষ 👩\u200d👩\u200d👧 क्\u200dष",
    "٠١٢٣ 一二三 ௰௱ Ⅷⅷ ①② ½⅓ ²³ 1_000 __ _ ___a",
    "𝔘𝔫𝔦 𝟘𝟙 𠀀𠀁 𐐀𐐁 𞤀𞤁 \U0003ffff\U000e0001",  # astral planes, unassigned code points
    "\x00ab\x00cd\x1c\x85\u2028\u00a0ab\ufeffcd\uffff",
    "don't stop-me now!!! x y zz i.e. e.g. 3.14 a1 1a",
    "",
    "a é é. é, ñ  𠀀 ",  # single characters of one to four bytes
    "the the The THE the cat the Cat sat",
    "longer_than_eight longer_than_eighteen longer_t longer_th abcdefgh abcdefghi ABCDEFGH",
    "Don't stop-me now: o'clock, l’été d'été ''ab'' a'b'c a''b x' 'y rock'n'roll I'm '",
    "well-known  state-of-the-art\u2010x non\u2011breaking --ab- a--b -c- \u2010 e-mail",
    "3 3.14 1,000.50 1.2.3.4 v1.2 2nd 3.x .5 5. 1..2 1,,2 ٣ ٣٫٤ ٣.٤ 12٣ ₂ ² ½ 0x1F a1.2b 1_000 7",
    "Éété naïve Ångström ﬁne ﬀ ß ẞ İstanbul ΑΣ ΣΑΣ ñ n\u0303 Ǆ ﷺ 한글 が ½ ① ㎏ ´a `b",
    "a b\tc\nd\r\ne  f \n\n g\u00a0\u00a0h\u2028\u2029i\x1c\x1dj\x85k \u200b l\u3000m",
    "x yz abc abcd abcde \x00 \x00\x00 a\x00b \ufeff 𝟘𝟙 𠀀𠀁 👩\u200d👩\u200d👧 क्\u200dष مَرحبًا",
    "\n \u00a0",
    "the cat and the dog of the cat were not the dog",
    " ",
]
STOP_WORDS = ["the", "of", "été", "don", "don't", "#", "x", "well-known", "𠀀𠀁", "absent"]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"ngram_range": (1, 2)},
    {"ngram_range": (1, 4)},
    {"ngram_range": (3, 4)},
    {"lowercase": False, "ngram_range": (1, 2)},
    {"min_df": 2, "ngram_range": (1, 2)},
    {"min_df": 0.1, "max_df": 0.3},
    {"max_df": 2, "ngram_range": (1, 3)},
    {"max_features": 7},
    {"max_features": 20, "ngram_range": (2, 3), "max_df": 3},
    *({"token_pattern": name, "ngram_range": (1, 2)} for name in TOKEN_PATTERNS if name != "words"),
    {"analyzer": "char"},
    {"analyzer": "char", "ngram_range": (2, 4), "lowercase": False},
    {"analyzer": "char_wb"},
    {"analyzer": "char_wb", "ngram_range": (5, 6), "strip_accents": "unicode"},
    {"analyzer": "char_wb", "ngram_range": (2, 3), "max_features": 30},
    {"strip_accents": "ascii", "ngram_range": (1, 2)},
    {"strip_accents": "unicode", "lowercase": False, "token_pattern": "apostrophes"},
    {"stop_words": STOP_WORDS, "ngram_range": (1, 3)},
    {"stop_words": STOP_WORDS, "token_pattern": "hyphens", "max_token_length": 6, "ngram_range": (2, 2)},
    {"token_pattern": "numbers", "max_token_length": 1},
    {
        "stop_words": STOP_WORDS,
        "token_pattern": "numbers",
        "strip_accents": "ascii",
        "min_df": 1,
        "ngram_range": (1, 2),
    },
    {"max_token_length": 3, "token_pattern": "short_words"},
]
texts = st.lists(st.text(nasty, max_size=40), min_size=1, max_size=6)
# CountVectorizer warns of stop words that its preprocessing would change.
without_warning = pytest.mark.filterwarnings("ignore:Your stop_words may be inconsistent")


@without_warning
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_difficult_texts(tmp_path: Path, options: dict[str, Any]) -> None:
    documents = [*DIFFICULT, " ".join(DIFFICULT), DIFFICULT[0] * 30, DIFFICULT[14] * 30]
    expected = counted(documents, **options)
    for shard_bytes in (1024, 1 << 20):
        same(ingested(tmp_path / f"{shard_bytes}", documents, shard_bytes=shard_bytes, **options), expected)


def check_any(known: list[str], seen: list[str], options: dict[str, Any], seed: int | None) -> None:
    """Terms of the known texts are found in those seen: all of them, or some in any order."""
    theirs = vectorizer(**options)
    try:
        theirs.fit(known)
    except ValueError:
        return  # no token at all
    terms = theirs.get_feature_names_out().tolist()
    if seed is not None:
        rng = np.random.default_rng(seed)
        terms = [terms[k] for k in rng.permutation(len(terms))[: rng.integers(1, len(terms), endpoint=True)]]
        theirs = vectorizer(**options).set_params(vocabulary=terms)
    matrix = theirs.transform(seen)
    matrix.sort_indices()
    ours = TextOptions.of(options)
    found = count_texts(seen, Vocabulary.from_terms(terms, ours.naming), ours)
    for a, b in zip(found, (matrix.indptr, matrix.indices, matrix.data), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("examples", [150, pytest.param(5000, marks=pytest.mark.slow)])
def test_any_text(examples: int) -> None:
    some = texts | PIECES.filter(len)
    checked = given(some, some, tokenizers, st.none() | st.integers(0, 2**32 - 1))(check_any)
    settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))(checked)()


@without_warning
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts, st.data())
def test_any_stop_words(documents: list[str], data: st.DataObject) -> None:
    """Stop words drawn from the tokens themselves."""
    pattern = data.draw(st.sampled_from(sorted(TOKEN_PATTERNS)))
    tokens = sorted({t for text in documents for t in re.findall(TOKEN_PATTERNS[pattern].regex, text.lower())})
    stop_words = data.draw(st.lists(st.sampled_from(tokens))) if tokens else []
    options = {"token_pattern": pattern, "stop_words": stop_words or None, "ngram_range": (1, 2)}
    check_any(documents, documents, options, None)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    documents=texts | PIECES.filter(len),
    options=st.fixed_dictionaries(
        {
            "ngram_range": st.sampled_from([(1, 1), (1, 2), (2, 3)]),
            "min_df": st.one_of(st.integers(1, 3), st.floats(0, 0.6)),
            "max_df": st.one_of(st.integers(2, 5), st.floats(0.5, 1)),
            "max_features": st.one_of(st.none(), st.integers(1, 9)),
        }
    ),
)
def test_any_selection(tmp_path_factory: pytest.TempPathFactory, documents: list[str], options: dict[str, Any]) -> None:
    folder = tmp_path_factory.mktemp("any")
    try:
        theirs = counted(documents, **options)
    except ValueError:
        with raises_code("empty-vocabulary"):
            ingested(folder, documents, **options)
    else:
        same(ingested(folder, documents, **options), theirs)


PATTERNS = [options for options in OPTIONS if options.keys() & {"token_pattern", "analyzer", "strip_accents"}]


@without_warning
@pytest.mark.parametrize("options", [{}, *(pytest.param(own, marks=pytest.mark.slow) for own in PATTERNS)], ids=str)
def test_every_code_point(tmp_path: Path, options: dict[str, Any]) -> None:
    """In a word, by itself twice, between digits and quotes, and after a sigma; a document for each block of 1,024."""
    points = [p for p in range(0x110000) if not 0xD800 <= p < 0xE000 and (p < 0x20000 or p >= 0x10FF00)]
    points += range(0x20000, 0x30000, 1 if options else 8)
    documents = [
        " ".join(f"x{chr(p)}y {chr(p)}{chr(p)} 1{chr(p)}2 '{chr(p)}'x ΑΣ{chr(p)}Σ" for p in points[k : k + 1024])
        for k in range(0, len(points), 1024)
    ]
    same(ingested(tmp_path, documents, **options), counted(documents, **options))


def test_extreme_sizes(tmp_path: Path) -> None:
    """A token of 5 MB, 200,000 tokens in one document, tokens with a common prefix, counts beyond 16 bits."""
    rng = np.random.default_rng(0)
    many = " ".join(map(str, rng.integers(10, 60_000, 200_000)))
    alike = " ".join("abcdefgh" * 5 + str(i) for i in range(5000))
    documents = ["ab" * 2_500_000 + " short", many, alike, alike, "the " * 66_000]
    same(ingested(tmp_path, documents), counted(documents))


def test_stop_words_are_kept_in_full(tmp_path: Path) -> None:
    """A named list and a file, whose path is relative to the run file, are lists in the manifest."""
    (tmp_path / "words.txt").write_text("\ufeffthe\r\n\n of \n")
    (tmp_path / "run.toml").write_text('[ingest]\ninputs = ["in.jsonl"]\nstop_words = "words.txt"\n')
    run = load_run_file(tmp_path / "run.toml")
    assert run.text.stop_words == ("of", "the")
    assert TextOptions(**run.text.plain()) == run.text
    assert TextOptions(token_pattern=r"(?u)\b\w+\b").token_pattern == "short_words"
    english = TextOptions(stop_words="english")
    assert english.stop_list == tuple(sorted(ENGLISH_STOP_WORDS))


# ----------------------------------------------------------------------------------------------------------------------
# N-grams do not depend on how few bits a word has; `test_countvectorizer` compares them with those of scikit-learn.


@pytest.mark.parametrize("analyzer", ["word", "char", "char_wb"])
@settings(max_examples=25, deadline=None)
@given(texts=PIECES, low=st.integers(1, 4), extra=st.integers(0, 4), spare=st.integers(0, 12))
def test_any_tokens_may_be_sorted_at_once(analyzer: str, texts: list[str], low: int, extra: int, spare: int) -> None:
    options = TextOptions(analyzer=analyzer, ngram_range=(low, low + extra))
    given = Texts.of(pa.array(texts, pa.string()))
    whole = count_text(given, options)
    # The bits of a token and a position leave none for prefixes: each is a range.
    totals = count_text(given, options.model_copy(update={"ngram_range": (1, 1)}))["totals_1"]
    least = max(1, totals.size.bit_length()) + int(totals.sum()).bit_length()
    with patch.object(ngrams, "_WORD_BITS", least + spare):
        parts = count_text(given, options)
    assert whole.keys() == parts.keys()
    for name in whole:
        np.testing.assert_array_equal(whole[name], parts[name], strict=True)


@pytest.mark.parametrize("n_features", [2, 2**9, 2**31, 2**40, 2**48])
@settings(max_examples=8, deadline=None)
@given(sizes=st.lists(st.sampled_from([0, 1, 5, 32, 33, 300]), max_size=6), seed=st.integers(0, 2**32 - 1))
def test_sort_rows(n_features: int, sizes: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    indptr = np.cumsum([0, *sizes])
    features = random.integers(-1, n_features, 50, dtype=np.int64)
    ngrams, counts = random.integers(0, 50, indptr[-1], dtype=np.int32), random.random(indptr[-1])
    ends, indices, values = sort_rows(indptr, ngrams, counts, features, n_features)
    for d in range(len(sizes)):
        row: dict[int, float] = {}
        for k in range(indptr[d], indptr[d + 1]):
            feature = int(features[ngrams[k]])
            if feature >= 0:
                row[feature] = row[feature] + counts[k] if feature in row else counts[k]
        assert indices[ends[d] : ends[d + 1]].tolist() == sorted(row)
        assert values[ends[d] : ends[d + 1]].tolist() == [row[feature] for feature in sorted(row)]


def test_real_counts_of_one_hash_are_summed_alphabetically() -> None:
    options = TextOptions(hash_bits=1)
    arrays = {"indptr": np.array([0, 3]), "ngrams": np.array([2, 0, 1], np.int32), "counts": np.array([1e16, 1.0, 1.0])}
    _, indices, values = encode_rows(arrays, np.ones(3, np.int64), 2, options)
    assert indices.tolist() == [1]
    assert values.tolist() == [1.0 + 1.0 + 1e16]


# ----------------------------------------------------------------------------------------------------------------------
# The vocabulary does not depend on the division of documents into pieces, of pieces into groups, or on ranges.


def write_pieces(folder: Path, pieces: list[list[str]], prefix: str = "") -> list[str]:
    """A file for each piece: a split of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    number, paths = itertools.count(), []
    for k, texts in enumerate(pieces):
        paths.append(folder / f"{prefix}{k:03}.jsonl")
        rows = [{"id": f"{prefix}{next(number)}", "label": "a", "text": text} for text in texts]
        paths[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [str(path) for path in paths]


def content(folder: Path) -> tuple[list[Any], list[str], pa.Table]:
    """The rows of a store, its terms, and what it knows of them."""
    matrix, terms = read_shards(folder)
    rows = [getattr(matrix, name).tolist() for name in ("indptr", "indices", "data")]
    return rows, terms, Store.open(folder).describe(np.arange(len(terms)))


TEXTS = st.lists(st.text("ab é\U00010400", max_size=12), min_size=1, max_size=8)
SHORT_WORDS = st.builds(
    TextOptions,
    ngram_range=st.sampled_from([(1, 1), (1, 2), (2, 3), (1, 3)]),
    token_pattern=st.just("short_words"),
    min_df=st.sampled_from([1, 2]),
    max_features=st.sampled_from([None, 1, 3]),
)
CONSTANTS = {"NGRAMS_PER_TASK": 20, "MAX_RANGES": 6, "MAX_SMALL_PIECES": 4, "RANGES_PER_PIECE": 4}


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    texts=TEXTS,
    later=TEXTS,
    cuts=st.sets(st.integers(1, 7)),
    options=SHORT_WORDS,
    constants=st.fixed_dictionaries({name: st.integers(1, most) for name, most in CONSTANTS.items()}),
)
def test_any_division_gives_the_same_vocabulary(
    texts: list[str],
    later: list[str],
    cuts: set[int],
    options: TextOptions,
    constants: dict[str, int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Of a new vocabulary, and of one that is extended by other documents; so many n-grams a range, pieces a group."""
    folder = tmp_path_factory.mktemp("exchange")

    def divide(documents: list[str]) -> list[list[str]]:
        bounds = [0, *sorted(cut for cut in cuts if cut < len(documents)), len(documents)]
        return [documents[a:b] for a, b in itertools.pairwise(bounds)]

    def made(name: str, first: list[list[str]], second: list[list[str]]) -> list[Any]:
        found: list[Any] = []
        for prefix, pieces in (("x", first), ("y", second)):
            try:
                ingest(
                    write_pieces(folder / name, pieces, prefix), folder / f"{name}-out", options, vocabulary="extend"
                )
            except InputError as error:
                found.append(error.code)
            else:
                found.append(content(folder / f"{name}-out"))
        return found

    expected = made("whole", [texts], [later])
    with patch.multiple(module, **constants):
        assert made("parts", divide(texts), divide(later)) == expected


def test_opens_grow_with_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a fixed number of ranges; counted by the audit events of the interpreter."""
    monkeypatch.setattr(module, "NGRAMS_PER_TASK", 3)
    monkeypatch.setattr(module, "MAX_RANGES", 8)
    opened = [0]
    sys.addaudithook(lambda event, _: opened.__setitem__(0, opened[0] + (event == "open")))
    counts = []
    for pieces in (10, 30, 90):
        paths = write_pieces(tmp_path / f"{pieces}", [[f"aa bb{i % 5} cc dd{i}"] for i in range(pieces)])
        before = opened[0]
        ingest(paths, tmp_path / f"out{pieces}", TextOptions(ngram_range=(1, 2)))
        counts.append(opened[0] - before)
    assert counts[2] - counts[1] <= 3.3 * (counts[1] - counts[0])
    assert counts[2] <= 44 * 90


# ----------------------------------------------------------------------------------------------------------------------
# Real corpora: the counts equal those of CountVectorizer.


@pytest.mark.corpora
@pytest.mark.parametrize(
    ("name", "options", "reading"),
    [
        ("reviews/books.jsonl.gz", {"ngram_range": (1, 2), "min_df": 2}, {}),
        ("20news/20news-bydate.jsonl.gz", {"max_features": 5000}, {"where": {"split": "test"}, "duplicates": "all"}),
        ("reuters/reuters21578.jsonl.gz", {"max_df": 0.5}, {"label_field": "modapte", "duplicates": "all"}),
    ],
)
def test_corpus(tmp_path: Path, name: str, options: dict[str, Any], reading: dict[str, Any]) -> None:
    ingest([str(corpus(name))], tmp_path / "out", TextOptions.of(options | reading), shard_bytes=1 << 20)
    matrix, terms = read_shards(tmp_path / "out")
    where = reading.get("where", {}).items()
    chosen = [row["text"] for row in records(name) if all(row[k] == v for k, v in where)]
    limit = options.pop("max_features", None)
    vectorizer = CountVectorizer(**options)
    theirs = vectorizer.fit_transform(chosen)
    place = vectorizer.vocabulary_
    assert (matrix != theirs[:, [place[term] for term in terms]]).nnz == 0
    totals, every = (np.asarray(counts.sum(axis=0)).ravel() for counts in (matrix, theirs))
    assert totals.tolist() == np.sort(every)[::-1][:limit].tolist()


@pytest.mark.corpora
def test_processed_books(tmp_path: Path) -> None:
    inputs = [str(corpus(f"reviews-processed/books/{label}.review.gz")) for label in ("positive", "negative")]
    manifest = ingest(inputs, tmp_path / "out", TextOptions())
    assert (manifest.rows, manifest.features.count) == (2000, 195_887)
    assert [(entry.name, entry.rows) for entry in manifest.labels.classes] == [("negative", 1000), ("positive", 1000)]


@pytest.mark.corpora
def test_svmlight_books(tmp_path: Path) -> None:
    path = str(corpus("reviews-counts/books.svmlight.gz"))
    manifest = ingest([path], tmp_path / "out", TextOptions())
    matrix, terms = read_shards(tmp_path / "out")
    theirs, labels = load_svmlight_file(path, zero_based=True)
    assert manifest.rows == 4465
    assert (matrix != theirs[:, [int(term) for term in terms]]).nnz == 0
    assert matrix.sum() == theirs.sum()
    assert manifest.labels.classes[1].rows == int((labels == 1).sum())
