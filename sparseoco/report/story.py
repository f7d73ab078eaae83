"""The run in words: what was learned, on what, how good, how sparse, compared with knowing nothing."""

from typing import Final, NamedTuple

from sparseoco.report.features import used_features
from sparseoco.report.leaderboard import LeaderboardRow, chosen_of, holds_documents
from sparseoco.report.results import Results
from sparseoco.report.wording import duration, integer, percent, percent_with_error, plural


class Tile(NamedTuple):
    """A figure with what it is."""

    value: str
    label: str


class Story(NamedTuple):
    """Two paragraphs and the figures to remember."""

    headline: str
    detail: str
    tiles: list[Tile]


_FATES: Final = {
    "dropped": "dropped on the way",
    "unfinished": "left when the time was over",
    "diverged": "diverged",
    "failed": "failed",
}


def fates(table: list[LeaderboardRow]) -> str:
    """A sentence on the configurations without a rank, empty where there are none."""
    counts = {status: sum(s.rank is None and s.status == status for s in table) for status in _FATES}
    parts = [f"{integer(count)} {_FATES[status]}" for status, count in counts.items() if count]
    if not parts:
        return ""
    listed = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    more = " The same command goes on with what was left." if counts["unfinished"] else ""
    return f"Of {plural(len(table), 'configuration')}, these did not come to the end: {listed}.{more}"


def baseline_error(results: Results) -> float | None:
    """Error of always answering the largest class: 1 − max_k n_k / Σ_k n_k; None without documents."""
    rows = [of.rows for of in results.run.corpus.classes]
    return 1 - max(rows) / sum(rows) if sum(rows) else None


def log_event(results: Results, table: list[LeaderboardRow]) -> Story:
    """Words and tiles for a run, also for one in which nothing could be chosen."""
    corpus, chosen = results.run.corpus, chosen_of(table)
    names = [of.name for of in corpus.classes]
    task = f"tell {names[0]} from {names[1]}" if len(names) == 2 else f"tell {len(names)} classes apart"
    seconds = sum(s.seconds or 0.0 for s in table)
    algorithms = len({s.algorithm for s in table})
    tried = f"{plural(len(table), 'configuration')} of {plural(algorithms, 'algorithm')}"
    effort = [Tile(integer(len(table)), "configurations tried"), Tile(duration(seconds), "of learning, all told")]
    if chosen is None or chosen.error is None:
        finished = sum(s.rank is not None for s in table)
        headline = f"No model was learned: of {tried}, {finished or 'none'} finished, and none was chosen."
        detail = f"The task was to {task}, on {plural(corpus.rows, 'document')}. The reasons are listed below."
        detail = f"{detail} {fates(table)}".strip()
        return Story(headline, detail, effort)

    baseline, error = baseline_error(results), chosen.error
    headline = f"A linear classifier learned to {task} from {plural(corpus.rows, 'document')}"
    own = holds_documents(chosen.algorithm) and not results.held_out
    kept = "those kept aside" if results.held_out else "them before learning them"
    judged = "them after learning from them" if own else kept
    headline += f", and is wrong on {percent_with_error(error, chosen.standard_error)} of {judged}."
    sentences = []
    label = "wrong on documents it was trained on" if own else "wrong on unseen documents"
    tiles = [Tile(percent_with_error(error, chosen.standard_error), label)]
    if baseline is not None:
        compared = "would be wrong on" if error < baseline else "would do no worse, being wrong on"
        sentences.append(f"Always answering {_largest(results)} {compared} {percent(baseline)}.")
        tiles.append(Tile(percent(baseline), "wrong if always the largest class"))
    if results.weights is not None:
        used = used_features(results.weights)
        share = percent(used / corpus.features if corpus.features else None)
        sentences.append(f"The model looks at {integer(used)} of {plural(corpus.features, 'feature')} ({share}).")
        if corpus.features_from is not None:
            sentences.append(f"It was shown only the {integer(corpus.features_from.features)} that a model had kept.")
        tiles.append(Tile(share, f"of the features used ({integer(used)})"))
    rule = {
        "error": "the one with the lowest error",
        "one-standard-error": "the sparsest within one standard error of the lowest error",
    }[results.best.rule if results.best else "error"]
    sentences.append(f"It was learned by {chosen.algorithm} ({chosen.label}), {rule} among {tried}.")
    sentences.append(fates(table))
    return Story(headline, " ".join(sentences).strip(), tiles + effort)


def _largest(results: Results) -> str:
    classes = results.run.corpus.classes
    largest = max(of.rows for of in classes)
    names = [of.name for of in classes if of.rows == largest]
    return f"{names[0]}, the largest class," if len(names) == 1 else "the same class, be it one of the largest,"
