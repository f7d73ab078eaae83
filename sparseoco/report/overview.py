"""The head of the report: what was learned from what, its error and sparsity, compared with the majority class."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sparseoco.core.formatting import (
    capitalised,
    duration,
    integer,
    metric_name,
    metric_with_error,
    percent,
    percent_with_error,
    plural,
)
from sparseoco.report.features import used_features
from sparseoco.report.leaderboard import LeaderboardRow, chosen_row, trains_on_all_documents
from sparseoco.report.predictions import PredictionSet
from sparseoco.report.quality import at_threshold, baseline_error, test_metric
from sparseoco.report.results import Results
from sparseoco.training.metrics.classes import never_predicted_sentence, trained_on_sentence


class Tile(NamedTuple):
    """A figure and its label."""

    value: str
    label: str


class Overview(NamedTuple):
    """Two paragraphs and the key figures."""

    headline: str
    detail: str
    tiles: list[Tile]


_STATUS_WORDS: Final = {
    "dropped": ("was dropped early", "were dropped early"),
    "unfinished": ("was unfinished at the time limit", "were unfinished at the time limit"),
    "diverged": ("diverged", "diverged"),
    "failed": ("failed", "failed"),
}
_RULES: Final = {
    "best": "the configuration with the best {metric}",
    "one-standard-error": "the sparsest configuration within one standard error of the best {metric}",
    "at-most": "the configuration with the best {metric} of those with few enough features",
}


def status_counts(table: list[LeaderboardRow]) -> str:
    """A sentence on the configurations without a rank, empty if there are none."""
    counts = {status: sum(row.rank is None and row.status == status for row in table) for status in _STATUS_WORDS}
    parts = [f"{integer(count)} {_STATUS_WORDS[status][count > 1]}" for status, count in counts.items() if count]
    if not parts:
        return ""
    resume = " Run the same command again to finish." if counts["unfinished"] else ""
    return f"Of {plural(len(table), 'configuration')}, {', '.join(parts)}.{resume}"


def overview(results: Results, table: list[LeaderboardRow], sets: Sequence[PredictionSet] = ()) -> Overview:
    """Text and tiles for a run, also for one in which no configuration could be chosen; `sets` are its predictions."""
    corpus, chosen = results.run.corpus, chosen_row(table)
    tried = f"{plural(len(table), 'configuration')} of {plural(len({row.algorithm for row in table}), 'algorithm')}"
    effort = [
        Tile(integer(len(table)), "configurations tried"),
        Tile(duration(sum(row.seconds or 0.0 for row in table)), "total training time"),
    ]
    if chosen is None or chosen.value is None:
        finished = sum(row.rank is not None for row in table)
        headline = f"No model was trained: {finished or 'none'} of {tried} finished, and none was chosen."
        detail = f"The corpus has {_size(results)}. The reasons are listed below. {status_counts(table)}".strip()
        return Overview(headline, detail, effort)

    majority = baseline_error(results)
    tiles, figures = _error_tiles(results, chosen, sets)
    tiles += _metric_tiles(results, chosen)
    if results.metric != "error":
        measured = metric_with_error(results.metric, chosen.value, chosen.value_error)
        figures.append(
            f"{'held-out ' if results.numbers or results.held_out else ''}{metric_name(results.metric)} {measured}"
        )
    lead = [f"{chosen.algorithm}, trained on {_size(results)}: {', '.join(figures)}."]
    sentences = [f"Parameters: {chosen.label}."]
    if majority is not None:
        tested = results.evaluation.majority_error if results.evaluation else None
        own = "" if tested is None else f" ({percent(tested)} on the test documents)"
        lead.append(f"Always predicting {results.simplest} has an error of {percent(majority)}{own}.")
        tiles.append(Tile(percent(majority), f"error of always predicting {results.simplest}"))
    if results.weights is not None:
        used = used_features(results.weights)
        share = percent(used / corpus.features if corpus.features else None)
        lead.append(f"The model uses {integer(used)} of {plural(corpus.features, 'feature')} ({share}).")
        weights = f": {plural(len(results.weights), 'weight')} in all" if len(results.weights) > used else ""
        sentences.append(f"A feature is used if its weight is not zero for every class{weights}.")
        if not chosen.weighting.is_identity and chosen.weighting.label not in chosen.label:
            sentences.append(f"Weighting of terms: {chosen.weighting.label}.")
        if corpus.features_from is not None:
            sentences.append(
                f"Training was restricted to {integer(corpus.features_from.features)} features selected by a model."
            )
        tiles.append(Tile(integer(used), f"of {plural(corpus.features, 'feature')} used ({share})"))
    if sets and sets[0].threshold:
        sentences.append(f"Threshold: {sets[0].threshold}.")
    rule = _RULES[results.best.rule if results.best else "best"].format(metric=metric_name(results.metric))
    sentences += [f"The model is {rule}, of {tried}.", status_counts(table)]
    notes = [f"Note: {note}." for note in (results.best.notes if results.best else ())]
    if results.best is not None and not results.best.beats_baseline and notes:
        lead, notes = [notes[0], *lead], notes[1:]
    lead = [*_never_predicted(results), *_trained_on(results), *lead]
    return Overview(" ".join(lead), " ".join([*filter(None, sentences), *notes]), tiles + effort)


def _never_predicted(results: Results) -> list[str]:
    """Sentences on the classes that are never predicted."""
    names = [record.name for record in results.run.corpus.classes]
    found = {"test documents": results.evaluation.never_predicted if results.evaluation else ()}
    missing = [names[k] for k in (results.model or {}).get("never_predicted", ()) if k < len(names)]
    found["held-out documents" if results.held_out else "documents that were not learned yet"] = tuple(missing)
    return [f"{capitalised(never_predicted_sentence(of, documents))}." for documents, of in found.items() if of]


def _trained_on(results: Results) -> list[str]:
    """A sentence if the test documents are not new."""
    names = results.evaluation.trained_on if results.evaluation else ()
    return [f"{capitalised(trained_on_sentence(names))}."] if names else []


def _error_tiles(
    results: Results, chosen: LeaderboardRow, sets: Sequence[PredictionSet]
) -> tuple[list[Tile], list[str]]:
    """The test error and the error that was selected by, as tiles and for the headline; of numbers the test RMSE."""
    evaluation = results.evaluation
    if results.numbers:
        rmse = test_metric(results, "rmse")
        return [], [] if rmse is None else [f"test RMSE {metric_with_error('rmse', rmse, None)}"]
    own = at_threshold(sets).get("error", (chosen.error, chosen.standard_error))
    kind, error = _error_kind(results, chosen), percent_with_error(*own)
    tiles, figures = [Tile(error, kind)], [f"{kind} {error}"]
    if evaluation is not None:
        tested = percent(evaluation.error)
        tiles.insert(0, Tile(tested, f"test error, {plural(evaluation.rows, 'document')}"))
        figures.insert(0, f"test error {tested}")
    return tiles, figures


def _metric_tiles(results: Results, chosen: LeaderboardRow) -> list[Tile]:
    """The metric that configurations are ranked by, unless it is the error: on the test set, and as it was selected."""
    name = results.metric
    if name == "error":
        return []
    tested = test_metric(results, name)
    tiles = [Tile(metric_with_error(name, chosen.value, chosen.value_error), f"{metric_name(name)}, selected by")]
    return (
        [] if tested is None else [Tile(metric_with_error(name, tested, None), f"test {metric_name(name)}")]
    ) + tiles


def _size(results: Results) -> str:
    corpus = results.run.corpus
    if results.numbers:
        return f"{plural(corpus.rows, 'document')} with numbers"
    return f"{plural(corpus.rows, 'document')} in {plural(len(corpus.classes), 'class', 'classes')}"


def _error_kind(results: Results, chosen: LeaderboardRow) -> str:
    """What the error of the chosen configuration was measured on."""
    if results.held_out:
        return "held-out error"
    return "training error" if trains_on_all_documents(chosen.algorithm) else "progressive validation error"
