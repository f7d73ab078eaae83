"""What commands print of inputs and outcomes."""

import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from sparseoco.cli.console import print_error, print_line, spelled
from sparseoco.core.errors import SparseocoError
from sparseoco.core.formatting import metric_name, metric_with_interval, plural
from sparseoco.learners import without_defaults
from sparseoco.storage.inputs import Pin, changed, local_pin
from sparseoco.storage.locations import Location
from sparseoco.storage.temporary import temporary_folder
from sparseoco.store.manifest import Manifest
from sparseoco.store.shards import Store
from sparseoco.text.formats import FORMATS, WITH_FIELDS
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import Kind, Preview, ReadOutcome, preview
from sparseoco.training.metrics import never_predicted_sentence, trained_on_sentence
from sparseoco.training.models import Model, read_description
from sparseoco.training.options import Configuration, SearchOptions

# ----------------------------------------------------------------------------------------------------------------------
# Inputs of commands: standard input as a file, and what is understood of raw text before it is counted.


STDIN = "-"
SHOWN = 12  # fields or classes, at most
_MAGIC = {b"\x1f\x8b": ".gz", b"\x28\xb5": ".zst"}


@contextmanager
def with_stdin(inputs: Sequence[str]) -> Iterator[list[str]]:
    """The inputs, with standard input (`-`) copied to a file, which is deleted afterwards; errors do not name it."""
    if STDIN not in inputs:
        yield list(inputs)
        return
    with temporary_folder() as folder:
        pin = _stdin_pin()
        start: bytes = sys.stdin.buffer.read(2)
        path = folder / f"stdin{_MAGIC.get(start, '')}"
        with path.open("wb") as file:
            file.write(start)
            shutil.copyfileobj(sys.stdin.buffer, file)
        if _stdin_pin() != pin:
            raise changed("Standard input")
        try:
            yield [str(path) if item == STDIN else item for item in inputs]
        except SparseocoError as error:
            error.args = tuple(argument.replace(str(path), "standard input") for argument in error.args)
            raise


def _stdin_pin() -> Pin | None:
    """The version of the file that is standard input, if it is one."""
    with suppress(OSError):
        status = os.fstat(sys.stdin.buffer.fileno())
        return local_pin(status) if stat.S_ISREG(status.st_mode) else None
    return None


def describe_kind(kind: Kind, options: TextOptions) -> list[str]:
    """What is understood of sources, in lines."""
    first = kind.sources[0]
    details = [FORMATS[kind.format].description]
    details += [f"encoding {kind.codec}"] * (kind.codec != "utf-8")
    more = f" and {len(kind.sources) - 1:,} more" if len(kind.sources) > 1 else ""
    lines = [f"{first.path}{more}: {', '.join(details)} ({_size(kind.bytes)})"]
    if kind.format in WITH_FIELDS and kind.fields:
        columns = options.record_fields or {"text": options.text_field}
        columns["label"] = options.label_field
        columns |= {str(name): field for name, field in options.columns.items()}
        used = [f"{name} from {field!r}" for name, field in columns.items()]
        named = options.id_field in kind.fields
        used.append(
            f"id from {options.id_field!r}" if named else f"no field {options.id_field!r}: ids by file and line"
        )
        lines.append(f"  fields: {_shown(kind.fields)}; {', '.join(used)}")
    if kind.format == "folder":
        lines.append("  label: the folder of the file")
    elif kind.hint:
        lines.append(f"  its lines look like {kind.hint}: if they are, set --format")
    count = "first " * (kind.format not in ("folder", "files")) + plural(kind.documents, "document")
    classes = _shown([f"{name} ({number:,})" for name, number in kind.classes.items()])
    if kind.first_id is not None:
        lines.append(f"  {count}{f', {classes}' if classes else ''}; first id: {kind.first_id}")
    if kind.bad is not None:
        lines.append(f"  {kind.bad.place or f'line {kind.bad.line}'}: {kind.bad.reason}")
    return lines


def print_inputs(inputs: list[str], out: Location | None, options: TextOptions) -> None:
    """Print what an ingest into the store `out` will understand of new inputs, and the empty and hidden files."""
    found = preview(inputs, out, options)
    for kind in found.kinds:
        for line in describe_kind(kind, options):
            print_line(spelled(line))
    print_lists(found)


def print_lists(found: Preview) -> None:
    """Print the empty and the hidden files among the inputs."""
    if found.empty:
        print_line(f"empty files: {_shown(found.empty)}")
    if found.hidden:
        print_line(f"hidden, and left out: {_shown(found.hidden)}")


def print_missing(field: str, missing: int, documents: int) -> None:
    """Print, as an error, how many documents have no value of a field."""
    if missing:
        print_error(f"{field}: no value in {missing:,} of {plural(documents, 'document')}")


def print_multiline(records: int) -> None:
    """Print, as an error, how many records of CSV and TSV span several lines."""
    if records:
        spans = plural(records, "record spans", "records span")
        print_error(f"{spans} several lines, in quoted fields; if quotes are text, save them as TSV")


def print_outcome(outcome: ReadOutcome) -> None:
    """Print, as errors, which rows and files gave no prediction of their own."""
    if outcome.bad_rows:
        print_error(f"{plural(outcome.bad_rows, 'malformed row')} left out")
    print_multiline(outcome.multiline_rows)
    for name, missing in outcome.missing.items():
        print_missing(name, missing, outcome.documents)
    if outcome.empty:
        print_error(f"empty files: {_shown(outcome.empty)}")
    if outcome.hidden:
        print_error(f"hidden, and left out: {_shown(outcome.hidden)}")


def checked_lines(lines: Iterable[bytes], options: TextOptions) -> Iterator[bytes]:
    """The lines of standard input; an error line is printed if they look like another format than plain text.

    With fields, lines are records.
    """
    for number, line in enumerate(lines):
        if number == 0 and not options.fields and line.lstrip().startswith((b'{"', b'{ "')):
            print_error(
                "standard input looks like JSON lines, and is read as plain text, one document per line: "
                "--format jsonl reads its fields"
            )
        yield line


def _shown(names: Sequence[str]) -> str:
    cut = [name if len(name) <= 40 else f"{name[:39]}…" for name in names[:SHOWN]]
    return ", ".join(cut) + (f", … ({len(names):,})" if len(names) > SHOWN else "")


def _size(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} GB"


# ----------------------------------------------------------------------------------------------------------------------
# What commands print about runs and models when they end.


def summarize_ingest(folder: Location, manifest: Manifest | None = None) -> None:
    """Print, as errors, which rows of a store are in quarantine, span several lines or lack the value of a field, and
    files without any: those of a manifest, by default the newest."""
    store = Store.open(folder) if manifest is None else Store(folder, manifest)
    manifest = store.manifest
    if manifest.quarantined_rows:
        files = ", ".join(entry.file for entry in manifest.quarantine)
        rows = plural(manifest.quarantined_rows, "malformed row")
        print_error(f"{rows} quarantined, listed in {store.folder}: {files}")
    if manifest.duplicate_rows:
        print_error(f"{plural(manifest.duplicate_rows, 'document')} left out: the id occurred before")
    if manifest.empty_rows:
        print_error(f"{plural(manifest.empty_rows, 'document')} without a term of the vocabulary")
    print_multiline(manifest.multiline_rows)
    for field in manifest.fields:
        print_missing(field.name, field.missing, manifest.rows)
    absent = np.flatnonzero(store.sources.column("rows") == 0)
    if absent.size:
        more = f" and {absent.size - 1:,} more" if absent.size > 1 else ""
        print_error(f"no documents from {store.sources[int(absent[0])].path}{more}")


def summarize_run(folder: Location, page: Location, *, tested: bool) -> None:
    """Print the model of a run, its evaluation, if one was to be made, and its report; first, whether it is of use."""
    from sparseoco.report.results import read_choice, read_evaluation

    best = read_choice(folder)
    model, evaluation = Model(folder / "model"), read_evaluation(folder / "evaluation.json")
    notes = best.notes
    held_out = "held-out documents" if (folder / "search" / "held_out.parquet").exists() else NEW
    if evaluation is not None:
        warn_of_classes(evaluation.never_predicted, "test documents")
        warn_of_learned(evaluation.trained_on)
    warn_of_classes(model.never_predicted, held_out)
    if not best.beats_baseline:
        print_line(f"warning: {notes[0]}")
        notes = notes[1:]
    summarize_model(model)
    if model.threshold_sentence:
        print_line(f"threshold: {model.threshold_sentence}")
    print_line(f"chosen by {best.metric}: {best.value:.4g} ± {best.standard_error:.2g}")
    for note in notes:
        print_line(f"note: {note}")
    if best.unfinished:
        left = f"{plural(best.unfinished, 'configuration')} unfinished"
        print_line(f"time limit reached: {left}; run the same command again to resume")
    if evaluation is not None:
        print_line(f"evaluation: {summarize_evaluation(evaluation.model_dump(exclude_unset=True), best.metric)}")
    elif tested:
        print_line("note: there are no test documents: so few were read that none were drawn (evaluate.holdout)")
    print_line(f"report: {page}")


NEW = "documents that it predicted before it learned them"


def warn_of_classes(names: Sequence[str], documents: str) -> None:
    """Print which classes are never predicted, if any."""
    if names:
        print_line(f"warning: {never_predicted_sentence(names, documents)}")


def warn_of_learned(names: Sequence[str]) -> None:
    """Print of which inputs of an evaluation the model has learned documents, if any."""
    if names:
        print_line(f"warning: {trained_on_sentence(names)}")


def summarize_evaluation(result: Mapping[str, Any], metric: str = "error") -> str:
    """The metrics of an evaluation in a sentence, also the metric by which the configuration was chosen."""
    left = f", {result['multiline_rows']:,} of them over several lines" if "multiline_rows" in result else ""
    if "bad_rows" in result:
        left += f", {plural(result['bad_rows'], 'malformed row')} left out"
    if "missing" in result:
        left += f", no value of {', '.join(f'{name} in {rows:,}' for name, rows in result['missing'].items())}"
    names = ["error", "f1", "f1_macro", "average_precision", "roc_auc", "log_loss"]
    names = ["rmse", "mae", "r2"] if "rmse" in result else [metric, *(name for name in names if name != metric)]
    intervals = result.get("intervals", {})
    figures = {name: metric_with_interval(name, result[name], intervals.get(name)) for name in names if name in result}
    first, *others = [f"{metric_name(name)} {figure}" for name, figure in figures.items()]
    sentence = ", ".join([f"{first} on {plural(result['rows'], 'document')}{left}", *others])
    if "majority_error" in result:
        sentence += f"; always the majority class: error {result['majority_error']:.2%}"
    return sentence + ("; 95% intervals in brackets" if intervals else "")


def summarize_scores(folder: Location) -> None:
    """Print what a folder of scores has, and which documents are kept; as errors, rows that were left out."""
    from sparseoco.report.scores import PAGE
    from sparseoco.scoring.kept import read_kept
    from sparseoco.scoring.parts import read_scores

    scores = read_scores(folder)
    assert scores is not None
    manifest, kept = scores.manifest, read_kept(folder)
    if manifest.quarantined_rows:
        files = ", ".join(entry.file for entry in manifest.quarantine)
        print_error(f"{plural(manifest.quarantined_rows, 'malformed row')} left out, listed in {folder}: {files}")
    print_multiline(manifest.multiline_rows)
    for name, rows in manifest.missing.items():
        print_missing(name, rows, manifest.rows)
    print_line(f"{folder}: {plural(manifest.rows, 'document')} scored, {plural(manifest.n_parts, 'part')}")
    if kept is not None:
        share = kept.rows / manifest.rows if manifest.rows else 0.0
        sign = "≥" if kept.included else ">"
        ties = f" ({kept.ties:,} of them equal it)" if kept.ties > 1 else ""
        print_line(f"kept {plural(kept.rows, 'document')}, {share:.2%}: {kept.ranked_by} {sign} {kept.value:.6g}{ties}")
    print_line(f"report: {folder / PAGE}")


def learner_line(name: str, parameters: Mapping[str, Any]) -> str:
    """A learner and its parameters.

    >>> learner_line("adagrad", {"eta": 0.3, "lam": 1e-05, "delta": 1e-06, "schedule": "constant"})
    'adagrad eta=0.3 lam=1e-05'
    """
    shown = without_defaults(name, parameters).items()
    return " ".join(
        [name, *(f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in shown)]
    )


def warn_of_other_model(folder: Location, configuration: Configuration, options: SearchOptions) -> None:
    """Print, as an error, which model of other settings training into a folder replaces."""
    if not (folder / "model.json").exists():
        return
    try:
        found = read_description(folder)
        line = learner_line(found["algorithm"], found["parameters"])
        before = [found[name] for name in ("algorithm", "parameters", "loss", "penalty", "epochs", "weighting")]
    except (SparseocoError, KeyError, TypeError):
        return  # training says what is wrong with it
    after = [configuration.algorithm, configuration.parameters, options.loss, options.penalty, options.epochs]
    after.append(configuration.weighting.model_dump(mode="json"))
    if before != after:
        print_error(f"{folder} has a model of other settings, which is replaced: {line}, loss {found['loss']}")


def summarize_model(model: Model) -> None:
    """Print a model's folder, learner, parameters, size and what it was started from."""
    description = model.description
    learner = learner_line(description["algorithm"], description["parameters"])
    size = plural(description["nonzeros"], "nonzero weight")
    print_line(f"model: {model.folder} ({learner}; {model.weighting.label}; {size})")
    origin = description.get("warm_start")
    if origin is not None:
        weights = f"{origin['found']:,} of {origin['weights']:,} weights found in this vocabulary"
        print_line(f"warm start: {'learner state restored' if origin['state'] else weights}")
    groups = description.get("feature_groups")
    if groups is not None:
        print_line(
            f"groups: {groups['kept']:,} of {groups['groups']:,} groups of features have a weight; "
            f"{groups['single']:,} groups are of one feature"
        )
    subset = description.get("features_from")
    if subset is not None:
        print_line(f"features: {subset['features']:,} with nonzero weights in the other model")
