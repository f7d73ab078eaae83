"""A run file with comments, from what is proposed for its inputs."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sparseoco.core.escapes import printable
from sparseoco.core.quantities import plural
from sparseoco.pipeline.proposal import Proposal
from sparseoco.pipeline.run_file import EvaluateOptions, NightlyOptions
from sparseoco.storage.toml_files import toml_key, toml_value
from sparseoco.store.weighting import TFIDF
from sparseoco.text.options import IngestOptions
from sparseoco.training.options.search import SearchOptions

COLUMN = 44  # of comments
SHOWN = 8  # classes or fields in a comment

HEAD = """\
# A run file of sparseoco, written by `sparseoco init`. Check it, then run it:
#     sparseoco doctor {file}
#     sparseoco run {file}
# Lines in comments show an option with its default, or with an example where that is said. Paths are relative to this
# file; the run is written to the folder {folder}.
"""


def run_file_text(inputs: list[str], file: Path, proposal: Proposal) -> str:
    """The text of a run file at a path."""
    paths = [_relative(item, file) for item in inputs]
    tables = {
        "ingest": _ingest(paths, proposal),
        "features": _features(),
        "search": _search(proposal),
        "evaluate": _evaluate(proposal),
        "nightly": _nightly(),
        "cluster": _cluster(),
    }
    head = HEAD.format(file=printable(file.name), folder=printable(file.name.removesuffix(".toml")))
    body = [line for name, lines in tables.items() for line in ("", f"[{name}]", *lines)]
    return head + "\n".join(body) + "\n\n" + _SCORE


_SCORE = """\
# [score]                                   # example: score other documents with the model, and keep the best tenth
# inputs = ["more.jsonl"]
# keep_top = "10%"
"""


def _relative(item: str, file: Path) -> str:
    """An input as the run file names it: relative to the file unless it is absolute or a URI."""
    if "://" in item or os.path.isabs(item):
        return item
    return os.path.relpath(os.path.abspath(item), os.path.abspath(file.parent))


def _line(key: str, value: Any, comment: str = "", *, active: bool = False) -> str:
    text = f"{'' if active else '# '}{key} = {toml_value(value)}"
    return f"{text + ' ':<{COLUMN}}# {printable(comment)}" if comment else text


def _default(model: Any, key: str, comment: str = "") -> str:
    """An option with its default, as a comment."""
    value = model.model_fields[key].get_default(call_default_factory=True)
    return _line(key, list(value) if isinstance(value, tuple) else value, comment)


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f", … ({len(names):,})" if len(names) > SHOWN else "")


def _classes(proposal: Proposal) -> str:
    sample = f"in a sample of {plural(proposal.documents, 'document')}"
    if proposal.labels == "numbers":
        return f"numbers, {sample}"
    largest_first = sorted(proposal.counts.items(), key=lambda entry: (-entry[1], entry[0]))
    counts = [f"{name} ({count:,})" for name, count in largest_first]
    return f"{plural(len(counts), 'class', 'classes')} {sample}: {_some(counts)}"


def _ingest(paths: list[str], proposal: Proposal) -> Iterator[str]:
    problem = [proposal.problem] if proposal.problem else []
    yield from (f"# {printable(note)}" for note in (*proposal.notes, *problem, *proposal.warnings))
    yield _line("inputs", paths, "files, folders or URIs", active=True)
    if proposal.text_field is not None:
        yield _line("text_field", proposal.text_field, active=True)
        yield _line("label_field", proposal.label_field, _classes(proposal), active=True)
    else:
        yield f"# {printable(_classes(proposal))}"
    meaning = {
        "classes": 'one class; "multi": any number of classes; "numbers": a regression target',
        "multi": "any number of classes for each document",
        "numbers": "a regression target",
    }
    yield _line("labels", proposal.labels, meaning[proposal.labels], active=proposal.labels != "classes")
    for key, value in proposal.ingest.items():
        yield _line(key, value, _REASONS.get(key, ""), active=True)
    if proposal.split is not None:
        name, train, _ = proposal.split
        yield _line("where", {name: train}, "learn from these documents; [evaluate] has the test set", active=True)
    for key, comment in _COLUMNS.items():
        for name in proposal.others.get(key, ())[:2]:
            yield _line(key, name, comment)
    yield _default(IngestOptions, "min_df", "ignore terms in fewer documents")
    if proposal.has_text:
        yield _default(IngestOptions, "ngram_range", "words, and pairs of words")
        yield _line("stop_words", "english", "example; by default none")
    yield from _fields(proposal)


_REASONS = {
    "header": "the first record is a document",
    "encoding": "as detected",
    "duplicates": "ids occur more than once",
    "max_bad_rows": "rows that may be quarantined",
}
_COLUMNS = {
    "id_field": "example: names documents in predictions; must be unique",
    "weight_field": "example: sample weights",
    "group_field": "example: for folds_by in [search]",
    "time_field": "example: for folds_by in [search]",
}


def _fields(proposal: Proposal) -> Iterator[str]:
    """Other fields as features, in comments: an example that replaces `text_field`."""
    others = [(kind, name) for kind in ("text", "category", "number") for name in proposal.others.get(kind, ())]
    if proposal.text_field is None or not others:
        return
    yield "# Example: several fields as features, in place of text_field."
    for kind, name in [("text", proposal.text_field), *others][:SHOWN]:
        yield _line(f"fields.{toml_key(name)}", {"type": kind})


def _features() -> Iterator[str]:
    comment = "how counts become values; a list tries several"
    for key, value in TFIDF.model_dump().items():
        yield _line(key, value, comment)
        comment = ""


def _search(proposal: Proposal) -> Iterator[str]:
    rare = proposal.rare_class
    if rare is not None:
        yield _line("metric", "average_precision", f"{rare} is rare: the error would hardly show it", active=True)
        yield _line("positive_class", rare, "the class that the metric and the threshold refer to", active=True)
        yield _line("threshold", "f1", "or { precision = 0.9 }, { recall = 0.9 }, { top = 0.01 }", active=True)
        yield _line("class_weight", "balanced", "example; by default every document counts the same")
    else:
        metric = {"classes": "error", "multi": "error", "numbers": "rmse"}[proposal.labels]
        better = {"classes": "log_loss, f1_macro, …", "multi": "f1_micro, f1_macro, …", "numbers": "mae, r2"}
        yield _line("metric", metric, f"or {better[proposal.labels]}")
    yield _default(SearchOptions, "select", 'or "one-standard-error", { at_most = 10_000 } features')
    yield _default(SearchOptions, "folds", "3 from 10,000 documents on")
    if "group_field" in proposal.others:
        yield _line("folds_by", "group", "example; needs group_field")
    elif "time_field" in proposal.others:
        yield _line("folds_by", "time", "example; needs time_field")
    yield _default(SearchOptions, "epochs")
    algorithms = SearchOptions.model_fields["algorithms"].get_default(call_default_factory=True)
    for name, grid in algorithms.items():
        yield _line(
            f"algorithms.{name}", {key: list(values) for key, values in grid.items()}, "see sparseoco algorithms"
        )
    yield _line("time_limit", "2h", "example; by default none")
    yield _default(SearchOptions, "seed")


def _evaluate(proposal: Proposal) -> Iterator[str]:
    if proposal.split is not None:
        name, _, test = proposal.split
        yield _line("where", {name: test}, "the test set", active=True)
    else:
        yield _default(EvaluateOptions, "holdout", "the share of the documents that is kept for the test")


def _nightly() -> Iterator[str]:
    yield _default(NightlyOptions, "confidence", "for `sparseoco nightly`: when a new model is promoted")
    yield _default(NightlyOptions, "margin")


def _cluster() -> Iterator[str]:
    yield _line("workers", 4, "example: worker processes; by default threads of this process")
    yield _line("memory", "4GB", "example: memory limit of a worker")
