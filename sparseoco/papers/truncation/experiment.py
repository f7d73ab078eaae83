"""Data files → tables, a page, and which of the claims of 2012 (STDA) or 2011 (SGFT) hold."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sparseoco.core.errors import InputError
from sparseoco.core.progress import ProgressCallback, no_progress
from sparseoco.papers.cells import run_cells
from sparseoco.papers.claims import Finding, judge_by_rules
from sparseoco.papers.documents import Documents, load_documents
from sparseoco.papers.experiment import EXPERIMENT_FOLDER, publish
from sparseoco.papers.sources import (
    DOMAINS,
    PRINTED,
    PRINTED_2011,
    DocumentSource,
    choose_sources,
    find_sources,
    missing_sources,
)
from sparseoco.papers.tables import Records, Row, extend, read_schemas, select
from sparseoco.papers.truncation import features
from sparseoco.papers.truncation.claims import sgft_claims, stda_claims
from sparseoco.papers.truncation.comparison import error_at, mean_path
from sparseoco.papers.truncation.functions import sgft_curves, stda_curves
from sparseoco.papers.truncation.methods import Protocol, published_protocol
from sparseoco.papers.truncation.page import truncation_page
from sparseoco.papers.truncation.published import SGFT_TABLES, STDA_TABLES, UNPRINTED, PrintedTable
from sparseoco.papers.truncation.trials import Trial, check_trial, group_cells, groups
from sparseoco.papers.truncation.validation import RULES, SPARSEST, TEN_FOLD, path_rows, result_rows
from sparseoco.storage.locks import exclusive_lock


class Experiment(NamedTuple):
    """What a paper compares: its name, also that of its methods' file, its data sets, their printed documents and
    features, tables, claims by the rule for λ with the paper's own, and the curves of its drawings."""

    name: str
    sources: tuple[str, ...]
    sizes: Mapping[str, tuple[int, int]]
    printed: tuple[PrintedTable, ...]
    schemas: dict[str, pa.Schema]
    rule: str
    claims: Callable[[Records, str], list[Finding]]
    curves: Callable[[], list[Row]]


_SCHEMAS: Final = read_schemas(__file__)
_BOTH: Final = (*DOMAINS, *(f"{domain}-text" for domain in DOMAINS), "ob-2-1", "sb-2-1")
STDA: Final = Experiment("stda", _BOTH, PRINTED, STDA_TABLES, _SCHEMAS, SPARSEST, stda_claims, stda_curves)
SGFT: Final = Experiment(
    "sgft",
    (*_BOTH, "ob-8-1", "sb-8-1", "reut20"),
    PRINTED_2011,
    SGFT_TABLES,
    {name: schema for name, schema in _SCHEMAS.items() if name not in ("features", "frequencies")},
    TEN_FOLD,
    sgft_claims,
    sgft_curves,
)


def reproduce_stda(
    data: Path,
    out: Path,
    *,
    methods: Path | None = None,
    passes: int | None = None,
    progress: ProgressCallback = no_progress,
) -> Path:
    """Run Tables III to V and Figures 1 and 2 of Oiwa et al. (2012).

    Writes OUT/*.parquet, OUT/inputs.json and OUT/stda.html.

    Results of parts stay in OUT/cells, so an interrupted run resumes. Equal files give equal bytes, except for run
    times, in timings.parquet and on the page.

    Parameters
    ----------
    data : Path
        Folder of the data sets, in it or in its subfolders; those that are missing are named on the page. Of each
        DOMAIN of reviews (books, dvd, electronics, kitchen), counts: DOMAIN/unlabeled.review of the processed corpus,
        else DOMAIN.svmlight, with feature_names.tsv, else DOMAIN/negative.review and positive.review; and text:
        DOMAIN.jsonl, with the labels negative and positive, else the .review files with the corpus's original mark-up.
        And 20news-bydate.jsonl. All may be compressed, with the suffix .gz.
    out : Path
        Folder of the results.
    methods : Path, optional
        File of methods to run in addition to the paper's (`methods.Protocol.adding`).
    passes : int, optional
        Passes over the data; the paper's 20 by default.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InputError
        If none of the files is there, or one is invalid.
    """
    return _reproduce(STDA, data, out, methods, passes, progress)


def reproduce_sgft(
    data: Path,
    out: Path,
    *,
    methods: Path | None = None,
    passes: int | None = None,
    progress: ProgressCallback = no_progress,
) -> Path:
    """Run Tables 3 and 4 and draw Figures 1 to 4 of Oiwa et al. (2011).

    Writes OUT/*.parquet, OUT/inputs.json and OUT/sgft.html.

    As `reproduce_stda`; `data` may have reuters21578.jsonl too.
    """
    return _reproduce(SGFT, data, out, methods, passes, progress)


def _reproduce(
    experiment: Experiment, data: Path, out: Path, methods: Path | None, passes: int | None, progress: ProgressCallback
) -> Path:
    published = published_protocol(experiment.name)
    if passes is not None:
        if passes < 1:
            raise InputError(f"passes={passes} must be at least 1.", code="invalid-option")
        published = published.model_copy(update={"search": published.search | {"epochs": passes}})
    protocol = published if methods is None else published.adding(methods)
    known = choose_sources(*experiment.sources)
    sources, files = find_sources(data, known)
    if methods is not None:
        files[methods.name] = methods
    records: Records = {name: [] for name in experiment.schemas}
    with exclusive_lock(out, EXPERIMENT_FOLDER):
        for done, source in enumerate(sources, start=1):
            documents = load_documents(source, files, out / "stores")
            progress("read", done, len(sources))
            extend(records, _data_set(experiment, protocol, published, source, documents, out / "cells", progress))
        tested = {rule: experiment.claims(records, rule) for rule in RULES}
        extend(records, judge_by_rules(tested, experiment.rule))
        records["functions"] = experiment.curves()
        inputs: dict[str, Any] = {
            **protocol.model_dump(),
            "added": [name for name in protocol.methods if name not in published.methods],
            "missing": [_missing(experiment, source) for source in missing_sources(known, sources)],
        }

        def page(records: Records, inputs: dict[str, Any]) -> str:
            return truncation_page(experiment.name, experiment.rule, experiment.printed, records, inputs)

        return publish(out, experiment.name, records, experiment.schemas, inputs, files, page)


def _data_set(
    experiment: Experiment,
    protocol: Protocol,
    published: Protocol,
    source: DocumentSource,
    documents: Documents,
    folder: Path,
    progress: ProgressCallback,
) -> Records:
    """All rows of a data set."""
    counted = features.PAIR if "features" in experiment.schemas else ()
    large = source.all_words or len(documents.classes) > 2
    trials = [
        Trial(source.name, documents, method, method.name in counted)
        for method in protocol.for_classes(len(documents.classes))
        if not (large and method.name in UNPRINTED)
    ]
    for trial in trials:
        check_trial(trial)
    parts = _train(trials, published, folder, source.title, progress)
    records: Records = {
        "sets": [_describe(experiment.sizes, source, documents)],
        "folds": [],
        "results": [],
        "paths": [],
        "timings": [],
    }
    for trial in trials:
        own = parts[trial.method.name]
        key = {"set": source.name, "method": trial.method.name}
        path = path_rows(trial, own)
        records["paths"] += [key | row for row in path]
        for rule, rows in result_rows(trial, own):
            records["folds"] += [key | {"rule": rule} | row for row in rows]
            records["results"] += _with_printed(experiment.printed, source, key | {"rule": rule}, rows, mean_path(path))
        seconds = sum(part["seconds"] for part in own)
        records["timings"].append(
            key | {"trainings": len(own), "columns": len(trial.method.strengths), "seconds": seconds}
        )
    if counted:
        extend(records, _features(trials, parts, records["folds"], folder, progress))
    return records


def _train(
    trials: Sequence[Trial], published: Protocol, folder: Path, title: str, progress: ProgressCallback
) -> dict[str, list[dict[str, Any]]]:
    """The results of all trainings, in the order of `held_out_folds`, by method.

    Methods of the paper are not trained together with added ones, so that adding one leaves their cells as they are.
    """
    ours = [trial for trial in trials if trial.method.name in published.methods]
    added = [trial for trial in trials if trial.method.name not in published.methods]
    together = [*groups(ours), *groups(added)]
    cells = [group_cells(group) for group in together]
    results = iter(run_cells(folder, title, [cell for own in cells for cell in own], progress))
    parts: dict[str, list[dict[str, Any]]] = {trial.method.name: [] for trial in trials}
    for group, own in zip(together, cells, strict=True):
        for _ in own:
            for trial, part in zip(group, next(results), strict=True):
                parts[trial.method.name].append(part)
    return parts


def _features(
    trials: Sequence[Trial],
    parts: dict[str, list[dict[str, Any]]],
    folds: Sequence[Row],
    folder: Path,
    progress: ProgressCallback,
) -> Records:
    """Table V of one fold, and Figure 2 of all."""
    by_name = {trial.method.name: trial for trial in trials}
    ours, theirs = (by_name[name] for name in features.PAIR)
    records: Records = {"frequencies": []}
    for row in select(folds, method=ours.method.name, rule=SPARSEST):
        fold, chosen = row["fold"], ours.method.strengths.index(row["lam"])
        own = [parts[name][fold] for name in features.PAIR]
        numbers = features.matched(own, chosen)
        records["frequencies"] += [{"set": ours.name} | row for row in features.frequency_rows(fold, own, numbers)]
        if fold == features.HELD_OUT:
            cell = features.features_cell((ours, theirs), numbers)
            (records["features"],) = run_cells(folder, "features", [cell], progress)
    return records


def _missing(experiment: Experiment, source: DocumentSource) -> Row:
    """A set that is not in the folder, and what it would have shown."""
    tables = [f"Table {table.name}" for table in experiment.printed if source.paper in table.results]
    shows = f"{source.paper} in {' and '.join(tables)}" if tables else "a domain that the paper prints nothing of"
    return {"title": source.title, "shows": f"{shows}: {source.differs}"}


def _describe(sizes: Mapping[str, tuple[int, int]], source: DocumentSource, documents: Documents) -> Row:
    n_documents, n_features = sizes[source.paper]
    return {
        "set": source.name,
        "title": source.title,
        "corpus": source.corpus,
        "paper_set": source.paper,
        "documents": documents.rows.shape[0],
        "features": documents.rows.shape[1],
        "classes": len(documents.classes),
        "nonzeros": documents.rows.nnz,
        "paper_documents": n_documents,
        "paper_features": n_features,
        "differs": source.differs,
    }


def _with_printed(
    tables: Sequence[PrintedTable], source: DocumentSource, key: Row, rows: Sequence[Row], path: Sequence[Row]
) -> list[Row]:
    """A row per printed table that has the method, with its result if it has the set; one if no table has it."""
    errors = [row["error"] for row in rows]
    mean = sum(errors) / len(errors)
    ours = {
        "error": mean,
        "deviation": (sum((error - mean) ** 2 for error in errors) / (len(errors) - 1)) ** 0.5,
        "sparsity": sum(row["sparsity"] for row in rows) / len(rows),
    }
    absent = dict.fromkeys(("paper_error", "paper_deviation", "paper_sparsity", "error_there"))
    printed: list[Row] = []
    for table in tables:
        if key["method"] in table.methods:
            if source.paper not in table.results:
                printed.append({"table": table.name, **absent})
                continue
            result = table.results[source.paper][key["method"]]
            printed.append(
                {
                    "table": table.name,
                    "paper_error": result.error / 100,
                    "paper_deviation": None if result.deviation is None else result.deviation / 100,
                    "paper_sparsity": result.sparsity / 100,
                    "error_there": error_at(path, result.sparsity / 100),
                }
            )
    return [key | ours | row for row in printed or [{"table": "", **absent}]]
