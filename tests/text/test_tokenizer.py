"""Analyzers, token patterns, accents, stop words and limits equal those of CountVectorizer for any text."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from sparseoco import Model
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.store.shards import Store, read_shards
from sparseoco.text.documents import hash_strings
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import Features, count_texts
from sparseoco.text.tokenizer import TOKEN_PATTERNS
from sparseoco.training.models import write_model
from tests.support.count_vectorizer import counted, ingested, same, vectorizer
from tests.support.errors import raises_code

DIFFICULT = [
    "Don't stop-me now: o'clock, l’été d'été ''ab'' a'b'c a''b x' 'y rock'n'roll I'm '",
    "well-known  state-of-the-art\u2010x non\u2011breaking --ab- a--b -c- \u2010 e-mail",
    "3 3.14 1,000.50 1.2.3.4 v1.2 2nd 3.x .5 5. 1..2 1,,2 ٣ ٣٫٤ ٣.٤ 12٣ ₂ ² ½ 0x1F a1.2b 1_000 7",
    "Éété naïve Ångström ﬁne ﬀ ß ẞ İstanbul ΑΣ ΣΑΣ ñ n\u0303 Ǆ ﷺ 한글 が ½ ① ㎏ ´a `b",
    "a b\tc\nd\r\ne  f \n\n g\u00a0\u00a0h\u2028\u2029i\x1c\x1dj\x85k \u200b l\u3000m",
    "x yz abc abcd abcde \x00 \x00\x00 a\x00b \ufeff 𝟘𝟙 𠀀𠀁 👩\u200d👩\u200d👧 क्\u200dष مَرحبًا",
    "",
    " ",
    "\n \u00a0",
    "the cat and the dog of the cat were not the dog",
]
STOP_WORDS = ["the", "of", "été", "don", "don't", "#", "x", "well-known", "𠀀𠀁", "absent"]
OPTIONS: list[dict[str, Any]] = [
    *({"token_pattern": name, "ngram_range": (1, 2)} for name in TOKEN_PATTERNS if name != "words"),
    {"analyzer": "char"},
    {"analyzer": "char", "ngram_range": (2, 4), "lowercase": False},
    {"analyzer": "char_wb"},
    {"analyzer": "char_wb", "ngram_range": (5, 6), "strip_accents": "unicode"},
    {"analyzer": "char_wb", "ngram_range": (4, 4)},
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

nasty = st.one_of(
    st.sampled_from(
        "ab AB1_ .,'’-\u2010\u2011\n\t\"\\ΣσςİIıßéÉ٣٤一\u0301\u0308\u200d\u00a0\u2028\u3000\x85\x1c𝔘𠀀\x00한مَ👩ﬁ½9"
    ),
    st.characters(exclude_categories=["Cs"]),
)
texts = st.lists(st.text(nasty, max_size=40), min_size=1, max_size=6)
tokenizers = st.one_of(
    st.fixed_dictionaries(
        {
            "ngram_range": st.sampled_from([(1, 1), (1, 2), (2, 3)]),
            "lowercase": st.booleans(),
            "strip_accents": st.sampled_from([None, "ascii", "unicode"]),
            "token_pattern": st.sampled_from(sorted(TOKEN_PATTERNS)),
            "max_token_length": st.sampled_from([None, 1, 2, 3]),
        }
    ),
    st.fixed_dictionaries(
        {
            "analyzer": st.sampled_from(["char", "char_wb"]),
            "ngram_range": st.sampled_from([(1, 1), (1, 3), (2, 2), (3, 5), (5, 6)]),
            "lowercase": st.booleans(),
            "strip_accents": st.sampled_from([None, "ascii", "unicode"]),
        }
    ),
)
# CountVectorizer warns of stop words that its preprocessing would change.
without_warning = pytest.mark.filterwarnings("ignore:Your stop_words may be inconsistent")


@without_warning
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_difficult_texts(tmp_path: Path, options: dict[str, Any]) -> None:
    documents = [*DIFFICULT, " ".join(DIFFICULT), DIFFICULT[2] * 30]
    same(ingested(tmp_path, documents, shard_bytes=1024, **options), counted(documents, **options))


def check_any(documents: list[str], options: dict[str, Any]) -> None:
    theirs = vectorizer(**options)
    try:
        theirs.fit(documents)
    except ValueError:
        return  # no token at all
    terms = theirs.get_feature_names_out().tolist()
    matrix = theirs.transform(documents)
    matrix.sort_indices()
    ours = TextOptions.of(options)
    found = count_texts(documents, Features.named(terms, ours.naming), ours)
    assert all((a == b).all() for a, b in zip(found, (matrix.indptr, matrix.indices, matrix.data), strict=True))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts, tokenizers)
def test_any_text(documents: list[str], options: dict[str, Any]) -> None:
    check_any(documents, options)


@pytest.mark.parametrize("lowercase", [True, False])
def test_every_character_of_two_bytes(lowercase: bool) -> None:
    check_any([f"a{chr(point)}b" for point in range(0x80, 0x800)], {"lowercase": lowercase})


@pytest.mark.slow
@settings(max_examples=5000, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts, tokenizers)
def test_any_text_at_length(documents: list[str], options: dict[str, Any]) -> None:
    check_any(documents, options)


@without_warning
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts, st.data())
def test_any_stop_words(documents: list[str], data: st.DataObject) -> None:
    """Stop words drawn from the tokens themselves."""
    pattern = data.draw(st.sampled_from(sorted(TOKEN_PATTERNS)))
    tokens = sorted({t for text in documents for t in re.findall(TOKEN_PATTERNS[pattern].regex, text.lower())})
    stop_words = data.draw(st.lists(st.sampled_from(tokens))) if tokens else []
    check_any(documents, {"token_pattern": pattern, "stop_words": stop_words or None, "ngram_range": (1, 2)})


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS[:12], ids=str)
def test_every_code_point(tmp_path: Path, options: dict[str, Any]) -> None:
    points = [p for p in range(0x110000) if not 0xD800 <= p < 0xE000 and (p < 0x30000 or p >= 0x10FF00)]
    documents = [
        " ".join(f"x{chr(p)}y {chr(p)}{chr(p)} 1{chr(p)}2 '{chr(p)}'x" for p in points[k : k + 1024])
        for k in range(0, len(points), 1024)
    ]
    same(ingested(tmp_path, documents, **options), counted(documents, **options))


@pytest.mark.parametrize("hashed", [{}, {"hash_bits": 24}], ids=str)
@pytest.mark.parametrize(
    "options",
    [
        {"analyzer": "char_wb", "ngram_range": (4, 5)},
        {"token_pattern": "apostrophes", "stop_words": STOP_WORDS, "strip_accents": "unicode"},
    ],
    ids=str,
)
def test_models_and_later_files(tmp_path: Path, options: dict[str, Any], hashed: dict[str, Any]) -> None:
    """A later file is counted over the same terms, hashed names are those that occur, and a model counts alike."""
    first, second = DIFFICULT[:5], DIFFICULT[5:]
    options = options | hashed
    ingested(tmp_path, first, **options)
    later = tmp_path / "later.jsonl"
    later.write_text("".join(json.dumps({"text": text, "label": k % 2}) + "\n" for k, text in enumerate(second)))
    ingest([str(later)], tmp_path / "out", TextOptions.of(options), vocabulary="extend")
    store = Store.open(tmp_path / "out")
    whole, names = read_shards(tmp_path / "out")
    theirs = vectorizer(**{key: value for key, value in options.items() if key != "hash_bits"})
    matrix, terms = theirs.fit_transform(DIFFICULT), theirs.get_feature_names_out().tolist()
    if hashed:
        files = [tmp_path / "out" / entry.file for entry in store.manifest.features.files]
        named = pa.concat_tables([pq.read_table(file) for file in files])
        assert sorted(set(named["term"].to_pylist())) == terms
        assert min(named["documents"].to_pylist()) > 0
        columns = hash_strings(pa.array(terms), 0, 24)
        assert (whole[:, columns] != matrix).nnz == 0
        return
    assert sorted(names) == terms
    assert (whole[:, np.argsort(names)] != matrix).nnz == 0
    write_model(tmp_path / "model", np.ones((store.n_features, 1)), store, {"algorithm": "none", "parameters": {}}, [])
    assert (Model(tmp_path / "model").values(DIFFICULT) != whole).nnz == 0


def test_stop_words_are_kept_in_full(tmp_path: Path) -> None:
    """A named list and a file, whose path is relative to the run file, are lists in the manifest."""
    (tmp_path / "words.txt").write_text("\ufeffthe\r\n\n of \n")
    (tmp_path / "run.toml").write_text('[ingest]\ninputs = ["in.jsonl"]\nstop_words = "words.txt"\n')
    run = load_run_file(tmp_path / "run.toml")
    assert run.text.stop_words == ("of", "the")
    assert TextOptions(**run.text.plain()) == run.text
    english = TextOptions(stop_words="english")
    assert english.stop_list == tuple(sorted(ENGLISH_STOP_WORDS))
    with raises_code("invalid-option", "stop_words", "absent.txt"):
        TextOptions.of({"stop_words": str(tmp_path / "absent.txt")})


def test_options_that_do_not_fit() -> None:
    for key, value in {"stop_words": ["the"], "token_pattern": "numbers", "max_token_length": 3}.items():
        with raises_code("invalid-option", key, "analyzer"):
            TextOptions.of({"analyzer": "char_wb", key: value})
    assert TextOptions(token_pattern=r"(?u)\b\w+\b").token_pattern == "short_words"


def test_characters_require_text(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("1 1:2\n-1 2:1\n")
    with raises_code("unsupported-combination", "analyzer"):
        ingest([str(tmp_path / "a.svm")], tmp_path / "out", TextOptions(analyzer="char"))
