"""Reviews of the domains in each of their formats, against figures by scikit-learn and the standard library."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction.text import CountVectorizer

from sparseoco.core.logs import progress_to
from sparseoco.papers import sources as papers
from sparseoco.papers.cl_fobos.experiment import reproduce_cl_fobos
from sparseoco.papers.sources import DOMAINS, Documents, choose_sources, find_sources
from sparseoco.papers.truncation.experiment import reproduce_sgft
from sparseoco.papers.truncation.runs import RULES, Trial, TunedMethod, learn, published_protocol
from tests.papers.small import load, rows_of, write_lines, write_reviews
from tests.support.errors import raises_code

WORDS = ["cable", "charge", "dull", "fine", "knife", "loud", "never", "pan", "sharp", "works"]
Review = tuple[str, str]
"""Label and text."""


def reviews(seed: int, size: int = 60) -> list[Review]:
    rng = np.random.default_rng(seed)
    return [(("negative", "positive")[k % 2], " ".join(rng.choice(WORDS, 6))) for k in range(size)]


def counts(text: str) -> Counter[str]:
    words = text.split()
    return Counter([*words, *(" ".join(pair) for pair in pairwise(words))])


def write(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        write_lines(path, lines)
    else:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def processed(rows: list[Review]) -> list[str]:
    return [
        " ".join([*(f"{term.replace(' ', '_')}:{n}" for term, n in counts(text).items()), f"#label#:{label}"])
        for label, text in rows
    ]


def assert_equal(documents: Documents, X: csr_matrix, terms: list[str], labels: list[str]) -> None:
    assert [documents.classes[int(k)] for k in documents.labels] == labels
    own = [term.replace("_", " ") for term in documents.terms]
    assert sorted(own) == sorted(terms)
    order = [own.index(term) for term in terms]
    assert (documents.rows[:, order].toarray() == X.toarray()).all()


def numbered(rows: list[Review]) -> tuple[list[str], list[str]]:
    """SVMlight with numbers from 1, and the lines of feature_names.tsv."""
    terms = sorted({term for _, text in rows for term in counts(text)})
    number = {term: k for k, term in enumerate(terms, start=1)}
    lines = []
    for label, text in rows:
        items = sorted((number[term], n) for term, n in counts(text).items())
        lines.append(f"{1 if label == 'positive' else -1:+d} " + " ".join(f"{k}:{n}" for k, n in items))
    return lines, [f"{k}\t{term}" for term, k in number.items()]


FORMS = ("processed", "two files", "numbered", "text")
FOLDERS = {"electronics": "electronics", "kitchen": "kitchen_&_housewares", "books": "acl/books"}


@pytest.mark.parametrize(
    ("form", "domain", "suffix"),
    [(form, domain, ("", ".gz")[(i + k) % 2]) for i, form in enumerate(FORMS) for k, domain in enumerate(FOLDERS)],
)
def test_reviews_of_every_form_match_scikit_learns_counts(tmp_path: Path, domain: str, form: str, suffix: str) -> None:
    """Every two of the form, the domain and the suffix together."""
    rows, own = reviews(1), tmp_path / "data" / FOLDERS[domain]
    name, labels = domain, [label for label, _ in rows]
    if form == "processed":
        write(own / f"unlabeled.review{suffix}", processed(rows))
    elif form == "two files":
        rows = sorted(rows)  # the negative ones first
        labels = [label for label, _ in rows]
        for label in ("positive", "negative"):
            write(own / f"{label}.review{suffix}", processed([row for row in rows if row[0] == label]))
    elif form == "numbered":
        lines, names = numbered(rows)
        write(tmp_path / "data" / domain / f"{domain}.svmlight{suffix}", lines)
        write(tmp_path / "data" / domain / "feature_names.tsv", names)
        labels = [str(2 * (label == "positive") - 1) for label in labels]
    else:
        name = f"{domain}-text"
        lines = [json.dumps({"id": "same", "label": label, "text": text}) for label, text in rows]
        write(tmp_path / "data" / "any" / f"{domain}.jsonl{suffix}", lines)
    vectorizer = CountVectorizer(ngram_range=(1, 2))
    X = vectorizer.fit_transform([text for _, text in rows])
    seen: list[tuple[str, int, int]] = []
    with progress_to(lambda *step: seen.append(step)):
        documents = load(tmp_path / "data", name, tmp_path / "work")
    assert not seen  # the ingest is part of a step of the experiment, which reports itself
    assert_equal(documents, X, vectorizer.get_feature_names_out().tolist(), labels)
    with raises_code("missing-file"):
        find_sources(tmp_path / "data", choose_sources(domain if form == "text" else f"{domain}-text"))


def test_the_papers_documents_come_first_and_what_is_absent_is_named(tmp_path: Path) -> None:
    known = choose_sources(*DOMAINS, *(f"{domain}-text" for domain in DOMAINS))
    write(tmp_path / "dvd" / "negative.review", processed(reviews(1)))  # alone it is no set
    added = [
        ("dvd", "dvd/positive.review", "dvd/positive.review"),
        ("dvd", "svm/dvd.svmlight.gz", "dvd.svmlight.gz"),
        ("dvd", "dvd/unlabeled.review", "dvd/unlabeled.review"),
    ]
    for name, file, wanted in added:
        write(tmp_path / file, processed(reviews(1)))
        sources, files = find_sources(tmp_path, known)
        assert [source.name for source in sources] == [name]
        assert wanted in sources[0].files
        assert files[wanted] == tmp_path / file
    first = {source.name: source.title for source in reversed(known)}
    missing = ["books", "electronics", "kitchen", *(f"{domain}-text" for domain in DOMAINS)]
    assert papers.missing_titles(known, sources) == [first[name] for name in missing]


def test_reviews_of_more_than_two_classes_are_refused(tmp_path: Path) -> None:
    rows = [("positive", "fine"), ("negative", "dull"), ("mixed", "loud")]
    write(tmp_path / "dvd" / "unlabeled.review", processed(rows))
    with raises_code("invalid-labels", "3 classes"):
        load(tmp_path, "dvd", tmp_path / "work")


@pytest.mark.slow
def test_a_domain_that_the_paper_does_not_print_runs_and_its_errors_are_those_of_the_weights(tmp_path: Path) -> None:
    """The errors of a fold, by NumPy from scikit-learn's matrix and the weights trained on the other folds."""
    (tmp_path / "data").mkdir()
    data = write_reviews(tmp_path / "data")
    path = (data / "books.svmlight.gz").rename(data / "kitchen.svmlight.gz")
    page = reproduce_sgft(data, tmp_path / "out", passes=1).read_text()
    assert "Not in the folder given: books; dvd; electronics; books, from text; dvd, from text" in page
    (described,) = rows_of(tmp_path / "out", "sets")
    X, y = load_svmlight_file(str(path), zero_based=True)
    assert (described["documents"], described["features"]) == (X.shape[0], len(np.unique(X.indices)))
    assert (described["paper_documents"], described["paper_features"]) == papers.PRINTED["kitchen"]
    results = rows_of(tmp_path / "out", "results")
    assert {row["paper_error"] for row in results} == {None}
    assert {row["table"] for row in results} == {"3", "4", ""}
    assert all("as printed" not in row["claim"] for row in rows_of(tmp_path / "out", "claims"))
    documents = load(data, "kitchen", tmp_path / "work")
    order = [int(term.removeprefix("word_")) for term in documents.terms]
    for method in published_protocol("sgft", 1).for_classes(2):
        _check_folds(tmp_path / "out", Trial("kitchen", documents, method), method, X[:, order], y)


def _check_folds(out: Path, trial: Trial, method: TunedMethod, X: csr_matrix, y: np.ndarray) -> None:
    for row in rows_of(out, "folds", method=method.name, rule=RULES[0]):
        (configuration,) = (c for c in method.configurations if c["lam"] == row["lam"])
        held_out = trial.fold_rows(row["fold"])
        weights = learn(trial, [configuration], (row["fold"],)).weights()[:, 0]
        wrong = np.count_nonzero((X[held_out] @ weights > 0) != (y[held_out] > 0))
        assert (row["errors"], row["error"]) == (wrong, wrong / len(held_out))


@pytest.mark.slow
def test_cl_fobos_takes_a_domain(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    data = write_reviews(tmp_path / "data")
    (data / "books.svmlight.gz").rename(data / "kitchen.svmlight.gz")
    rows = reviews(1)
    write(data / "electronics.jsonl", [json.dumps({"label": label, "text": text}) for label, text in rows])
    page = reproduce_cl_fobos(data, tmp_path / "out", repetitions=2, rounds=450).read_text()
    described = json.loads((tmp_path / "out" / "inputs.json").read_text())
    vectorizer = CountVectorizer(ngram_range=(1, 2)).fit([text for _, text in rows])
    assert (described["domain"], described["examples"]) == ("electronics", len(rows))
    assert described["features"] == len(vectorizer.vocabulary_)
    assert list(described["files"]) == ["electronics.jsonl"]
    assert "These are of electronics" in page
    assert "given: books; dvd; electronics; books, from text; dvd, from text; kitchen, from text." in page
    assert all("as printed, to within" not in row["claim"] for row in rows_of(tmp_path / "out", "claims"))
    with raises_code("invalid-option", "domain='toys'"):
        reproduce_cl_fobos(data, tmp_path / "none", domain="toys")
    with raises_code("missing-file"):
        reproduce_cl_fobos(data, tmp_path / "none", domain="dvd")


def test_sets_of_all_words() -> None:
    assert {source.name for source in papers.SOURCES if source.all_words} == {f"{domain}-text" for domain in DOMAINS}
