"""scikit-learn's CountVectorizer in the order of this project, and the same options for both."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sparseoco.store.shards import read_shards
from sparseoco.store.weighting import Weighting
from sparseoco.text.ingest import ingest
from sparseoco.text.options import NUMBER, NUMBERS, TOKEN_PATTERNS, TextOptions

nasty = st.one_of(
    st.sampled_from(
        "ab AB1_ .,'’-\u2010\u2011\n\t\"\\ΣσςİIıßéÉ٣٤一\u0301\u0308\u200d\u00a0\u2028\u3000\x85\x1c𝔘𠀀\x00한مَ👩ﬁ½9"
    ),
    st.characters(exclude_categories=["Cs"]),
)
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
"""Options of analyzers and tokenizers."""

# Lengths around 8, 16 and 64 bytes, equal beginnings, single characters of one to four bytes, and separators.
_PIECES = ["a", "b", "é", "が", "𠀀", "_", " ", "  ", ".", "\x00", "\n", "abcdefg", "abcdefgh", "abcdefghi", "x" * 15]
_PIECES += ["x" * 16, "x" * 17, "x" * 16 + "y", "é" * 32, "z" * 63, "z" * 64, "z" * 65, " " * 63, "-" * 130]
PIECES = st.lists(st.lists(st.sampled_from(_PIECES), max_size=25).map("".join), max_size=6)


def vectorizer(**options: Any) -> CountVectorizer:
    """The CountVectorizer with the same options; what it lacks, as a tokenizer of regular expressions."""
    options = dict(options)
    name, longest = options.pop("token_pattern", "words"), options.pop("max_token_length", None)
    pattern = TOKEN_PATTERNS[name]
    if options.get("analyzer", "word") != "word":
        return CountVectorizer(**options)
    if longest is None and not pattern.folds_numbers:
        return CountVectorizer(token_pattern=pattern.regex, **options)

    def tokens(text: str) -> list[str]:
        found = []
        for token in re.findall(pattern.regex, text):
            if pattern.folds_numbers and re.fullmatch(NUMBERS, token):
                found.append(NUMBER)
            elif longest is None or len(token) <= longest:
                found.append(token)
        return found

    return CountVectorizer(tokenizer=tokens, token_pattern=None, **options)


def tfidf(weighting: Weighting) -> Any:
    """What weights counts in the same way."""
    transformer = TfidfTransformer(
        norm=None if weighting.norm == "none" else "l2", use_idf=weighting.idf, sublinear_tf=weighting.tf == "log"
    )
    binary = [FunctionTransformer(lambda counts: (counts > 0).astype(float))] if weighting.tf == "binary" else []
    return make_pipeline(*binary, transformer)


def ranked(matrix: Any, terms: Any, *, words: bool) -> list[int]:
    """The columns in this project's order: by decreasing count, then length, then alphabetically."""
    totals = np.asarray(matrix.sum(axis=0)).ravel()
    sizes = [term.count(" ") if words else len(term) for term in terms]
    return sorted(range(len(terms)), key=lambda i: (-totals[i], sizes[i], terms[i]))


def counted(documents: list[str], **options: Any) -> tuple[Any, list[str]]:
    """CountVectorizer's counts with columns in this project's order, of which `max_features` keeps the first."""
    most = options.pop("max_features", None)
    theirs = vectorizer(**options)
    matrix = theirs.fit_transform(documents)
    terms = theirs.get_feature_names_out()
    order = ranked(matrix, terms, words=options.get("analyzer", "word") == "word")[:most]
    ordered = matrix[:, order]
    ordered.sort_indices()
    if most is not None:
        limited = vectorizer(**options, max_features=most).fit_transform(documents)
        assert sorted(limited.sum(axis=0).A1) == sorted(ordered.sum(axis=0).A1)  # they may differ in ties
    return ordered, [terms[i] for i in order]


def ingested(folder: Path, documents: list[str], **options: Any) -> tuple[Any, list[str]]:
    """The counts and terms of a store of these documents."""
    shard_bytes = options.pop("shard_bytes", 1 << 20)
    source = folder / "in.jsonl"
    folder.mkdir(exist_ok=True)
    with source.open("w") as file:
        for k, text in enumerate(documents):
            file.write(json.dumps({"text": text, "label": k % 2}, ensure_ascii=k % 3 == 0) + "\n")
    ingest([str(source)], folder / "out", TextOptions.of(options), shard_bytes=shard_bytes)
    return read_shards(folder / "out")


def same(ours: tuple[Any, list[str]], theirs: tuple[Any, list[str]]) -> None:
    """Assert equal terms and counts."""
    assert ours[1] == theirs[1]
    assert ours[0].shape == theirs[0].shape
    assert (ours[0].indptr == theirs[0].indptr).all()
    assert (ours[0].indices == theirs[0].indices).all()
    assert (ours[0].data == theirs[0].data).all()
