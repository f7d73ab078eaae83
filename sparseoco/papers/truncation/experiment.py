"""The experiments of Oiwa et al. 2011 and 2012: claims, page, run."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparseoco.core.errors import InputError
from sparseoco.core.formatting import integer, percent
from sparseoco.papers import claims, sources
from sparseoco.papers.claims import Comparison, Finding, Measured, Pair
from sparseoco.papers.experiment import Experiment, Run, lines_by, look, read_schemas, render
from sparseoco.papers.rows import Records, Row, column, distinct, extend, grouped, mean, mean_rows, select
from sparseoco.papers.truncation import runs
from sparseoco.report import charts

# ----------------------------------------------------------------------------------------------------------------------
# Methods compared on a data set, fold by fold: errors and sparsities with a rule's λ, and errors at equal sparsity.


MEAN: Final = "mean of the sets"
"""Where a claim is tested on all sets together."""


class SetRows(NamedTuple):
    """The rows of a data set: with a rule's λ, and of all λ."""

    title: str
    folds: Sequence[Row]
    paths: Sequence[Row]

    def shares(self, method: str, name: str = "error") -> list[float]:
        """The errors, sparsities or, as the negative of sparsity, nonzero weights of a method, a share per fold."""
        rows = select(self.folds, method=method)
        return [-row["sparsity"] for row in rows] if name == "nonzero weights" else column(rows, name)

    def text(self, method: str) -> str:
        """Mean error, and sparsity in parentheses, as in the papers' tables."""
        error, sparsity = (percent(mean(self.shares(method, name))) for name in ("error", "sparsity"))
        return f"{error} ({sparsity})"

    def fold_paths(self, method: str) -> list[list[Row]]:
        """The rows of the λ of a method, fold by fold."""
        return grouped(select(self.paths, method=method), "fold")

    def errors_at(self, method: str, sparsity: float) -> list[float] | None:
        """`error_at` in every fold; None if the λ of a fold do not enclose this sparsity."""
        errors = [runs.error_at(path, sparsity) for path in self.fold_paths(method)]
        found = [error for error in errors if error is not None]
        return found if len(found) == len(errors) else None


def errors_text(errors: Sequence[float] | None) -> str:
    """The mean of errors at a sparsity that not every λ path reaches."""
    return "not reached in every fold" if errors is None else percent(mean(errors))


def with_mean(records: Records, found: list[Finding]) -> list[Finding]:
    """The findings of a claim on every set and, where it was compared on sets of two or more corpora, on their mean.

    Sets of one corpus, as reviews in two forms or newsgroups in several sets, may share documents and count as one.
    """
    corpora = {row["title"]: row["corpus"] for row in records["sets"]}
    groups: dict[str, list[list[Comparison]]] = {}
    for row in found:
        parts = [part for part in row.evidence if isinstance(part, Comparison)]
        if len(parts) == len(row.evidence):
            groups.setdefault(corpora[row.where], []).append(parts)
    if len(groups) < 2:
        return found
    evidence = [
        claims.in_the_mean([[parts[k] for parts in group] for group in groups.values()])
        for k in range(len(found[0].evidence))
    ]
    here = f"{sum(map(len, groups.values()))} sets; those of one corpus count as one: {', '.join(groups)}"
    return [*found, found[0]._replace(where=MEAN, here=here, evidence=tuple(evidence))]


# ----------------------------------------------------------------------------------------------------------------------
# Measures of the claims in claims.toml, each on every data set. Methods are compared fold by fold, with the λ of a
# rule, and at equal sparsity, where no rule matters.


SPARSE: Final = 0.8
"""Sparsity at which methods are compared, and from which on weights count as sparse."""
CLAIMS: Final = {name: claims.read_claims(__file__, name) for name in ("stda", "sgft")}

Pairs = Sequence[Sequence[str]]
"""The names of two methods each."""

_pair = partial(Pair, percent=True, overlap=claims.FOLDS_OVERLAP)
"""Shares in the ten folds of a cross-validation."""


def truncation_claims(name: str, records: Records, rule: str) -> list[Finding]:
    """The claims of a paper, stda or sgft, with this rule for λ: on every set, and all but those on bounds and printed
    results on the mean of the sets."""
    of_rule = records | {table: select(records[table], rule=rule) for table in ("folds", "results")}
    found: list[Finding] = []
    for claim in CLAIMS[name]:
        own = claims.find_evidence([claim], Measures(of_rule))
        found += own if claim.measure == "printed_errors" else with_mean(records, own)
    return found


class Measures(NamedTuple):
    """What the claims are tested on: `measure` in claims.toml is the name of a method."""

    records: Records

    def _sets(self) -> Iterator[SetRows]:
        for row in self.records["sets"]:
            folds, paths = (select(self.records[table], set=row["set"]) for table in ("folds", "paths"))
            yield SetRows(row["title"], folds, paths)

    def folds(self, pairs: Pairs, shares: Sequence[str] = ("error",), *, margin: float = 0.0) -> Iterator[Measured]:
        """Shares of both methods of each pair, of the first less the margin, on every set that has them."""
        for own in self._sets():
            if not {name for names in pairs for name in names} <= {row["method"] for row in own.folds}:
                continue
            texts, values = [], []
            for ours, theirs in pairs:
                text = f"{own.text(ours)}, {own.text(theirs)}"
                texts.append(f"{ours} and {theirs}: {text}" if len(pairs) > 1 else text)
                what = f"{ours} − {theirs}" if len(pairs) > 1 else ""
                for name in shares:
                    left = [share - margin for share in own.shares(ours, name)]
                    label = f"{ours} − {100 * margin:g} points − {theirs}" if margin else what
                    label = f"{what} {name}".strip() if len(shares) > 1 else label
                    values.append(_pair(left, own.shares(theirs, name), label))
            yield Measured(own.title, "; ".join(texts), values)

    def folds_together(self, pairs: Pairs) -> Iterator[Measured]:
        return (place._replace(values=[place.values]) for place in self.folds(pairs))

    def errors_at_sparsity(
        self, ours: str, theirs: str, here: str = "{ours} and {theirs}", factor: float = 1.0
    ) -> Iterator[Measured]:
        """A factor of the error of one method, and the error of another."""
        for own in self._sets():
            left, right = (own.errors_at(name, SPARSE) for name in (ours, theirs))
            pair = None if left is None or right is None else _pair([factor * error for error in left], right)
            yield Measured(own.title, here.format(ours=errors_text(left), theirs=errors_text(right)), [pair])

    def error_lost(self, methods: Sequence[str]) -> Iterator[Measured]:
        """What sparse weights of each method lose against the least error of its λ; the first against the others."""
        for own in self._sets():
            texts, rises = [], []
            for name in methods:
                least = [min(column(path, "error")) for path in own.fold_paths(name)]
                sparse = own.errors_at(name, SPARSE)
                rises.append(None if sparse is None else [a - b for a, b in zip(sparse, least, strict=True)])
                texts.append(f"{name}: least error {percent(mean(least))}, then {errors_text(sparse)}")
            values = [
                None if rises[0] is None or rise is None else _pair(rise, rises[0], f"{name} − {methods[0]}")
                for name, rise in zip(methods[1:], rises[1:], strict=True)
            ]
            yield Measured(own.title, "; ".join(texts), values)

    def lines(self) -> Iterator[Measured]:
        """Figure 2 of 2012, where both methods select features in every fold, of two folds or more."""
        for data_set in self.records["sets"]:
            rows = select(self.records["frequencies"], set=data_set["set"])
            folds = [set(column(select(rows, method=name), "fold")) for name in (runs.STDA_INF, runs.RDA)]
            if not len(folds[0]) == len(folds[1]) > 1:
                continue
            shares = []
            for fold in sorted({row["fold"] for row in rows}):
                ours, theirs = (
                    column(select(rows, fold=fold, method=name), "count") for name in (runs.STDA_INF, runs.RDA)
                )
                shares.append(mean(float(a < b) for a, b in zip(ours, theirs, strict=True)))
            first = [select(rows, fold=rows[0]["fold"], method=name) for name in (runs.STDA_INF, runs.RDA)]
            selected = " and ".join(integer(own[0]["selected"]) for own in first)
            half = " and ".join(integer(own[len(own) // 2]["count"]) for own in first)
            here = (
                f"{percent(mean(shares))} of the line is below; in the first fold half of the selected features "
                f"({selected}) occur no more than {half} times"
            )
            yield Measured(
                data_set["title"], here, [_pair([0.5] * len(shares), shares, "half − share of the line that is below")]
            )

    def norms_below(self, methods: Sequence[str], bound: float) -> Iterator[Measured]:
        """Whether the norm of a coordinate's history stays below the bound in every fold, with the λ of the rule."""
        for own in self._sets():
            texts, holds = [], []
            for name in methods:
                norms = {(row["fold"], row["lam"]): row["norm"] for row in select(own.paths, method=name)}
                largest = max(norms[row["fold"], row["lam"]] for row in select(own.folds, method=name))
                holds.append(largest < bound)
                texts.append(f"{name}: at most {largest:,.4g}, and {max(norms.values()):,.4g} with any λ")
            yield Measured(own.title, "; ".join(texts), holds)

    def printed_errors(self, method: str) -> Iterator[Measured]:
        """Against the printed error, which is the unit of the margin."""
        for data_set, own in zip(self.records["sets"], self._sets(), strict=True):
            results = select(self.records["results"], set=data_set["set"], method=method)
            printed = [row["paper_error"] for row in results if row["paper_error"] is not None]
            if printed:
                errors, paper = own.shares(method), printed[0]
                here = f"{own.text(method)} against {percent(paper)}"
                yield Measured(own.title, here, [_pair(errors, [paper] * len(errors), unit=paper)])


# ----------------------------------------------------------------------------------------------------------------------
# The page of the experiments.


def truncation_page(paper: runs.Paper, records: Records, inputs: dict[str, Any]) -> str:
    """The HTML of the page of a paper."""
    methods, unprinted = distinct(records["paths"], "method"), distinct(select(records["results"], table=""), "method")
    # Besides the printed tables, one without a name and printed results for each kind of methods that no table has.
    others = {title: names for title, names in runs.NOT_PRINTED.items() if set(names) <= set(unprinted)}
    return render(
        paper.name,
        records,
        inputs=inputs,
        rule=paper.rule,
        rules=runs.RULES,
        sheets=[*paper.printed, *(runs.PrintedTable("", title, names, {}) for title, names in others.items())],
        sections=[_section(records, row, methods) for row in records["sets"]],
        samples=runs.SAMPLES if paper.name == "stda" else {},
    )


def _section(records: Records, data_set: Row, methods: Sequence[str]) -> dict[str, Any]:
    """A data set: error against sparsity; for STDA, Figure 2 and the features that only one method selects."""
    name, title = data_set["set"], data_set["title"]
    chart = path_figure(select(records["paths"], set=name), methods)
    path = charts.plot(f"path-{name}", f"Error against sparsity, {title}", chart)
    frequencies, rows = None, select(records.get("frequencies", []), set=name, fold=runs.HELD_OUT)
    if rows:
        heading = f"Occurrences of the selected features, {title}"
        frequencies = charts.plot(f"frequencies-{name}", heading, frequencies_figure(rows))
    features = select(records.get("features", []), set=name)
    samples = [(method, select(features, method=method)) for method in runs.PAIR] if features else []
    return {"row": data_set, "path": path, "frequencies": frequencies, "samples": samples}


def path_figure(rows: Sequence[Row], methods: Sequence[str]) -> charts.Chart:
    """A line per method through its λ."""
    shown = []
    for row in mean_rows(rows, ("method", "lam"), ("error", "sparsity")):
        text = f"λ = {row['lam']:g}\nerror {percent(row['error'])}, zero weights {percent(row['sparsity'])}"
        shown.append(row | {"share": 100 * row["sparsity"], "text": text})
    looks = {
        method: {"dash": dash, "size": 2.5, **look(k)}
        for k, (method, dash) in enumerate(zip(methods, charts.dashes(len(methods)), strict=True))
    }
    series = lines_by(shown, "method", "share", "error", looks, label="{text}", scale=100)
    least = min(charts.values_y(series)) / 100
    x = charts.linear_axis("zero weights, %", [], low=0.0, high=101.0)
    return charts.Chart(x, charts.linear_axis("error, %", [], low=0.0, high=100 * min(4 * least + 0.1, 0.6)), series)


def frequencies_figure(rows: Sequence[Row]) -> charts.Chart:
    """Figure 2: occurrences of the selected features, from the rarest."""
    drawn = [
        row
        | {"percent": 100 * row["share"], "shown": max(row["count"], charts.ZERO)}
        | {"line": f"{row['method']}, {integer(row['selected'])} features"}
        for row in rows
    ]
    looks = {
        row["line"]: {"colour": charts.COLOURS[k], "dash": charts.DASHES[k], "heading": method, "steps": True}
        for k, method in enumerate(runs.PAIR)
        for row in select(drawn, method=method)
    }
    label = "{percent:.0f} % of those selected: {count:,} times"
    series = lines_by(drawn, "line", "percent", "shown", looks, label=label)
    x = charts.linear_axis("selected features, from the rarest, %", charts.values_x(series))
    return charts.Chart(x, charts.log_axis("occurrences (log scale)", charts.values_y(series), counts=True), series)


# ----------------------------------------------------------------------------------------------------------------------
# Data files → tables, a page, and which of the claims of 2012 (STDA) or 2011 (SGFT) hold.


_SCHEMAS: Final = read_schemas(__file__)
_BOTH: Final = (*sources.DOMAINS, *(f"{domain}-text" for domain in sources.DOMAINS), "ob-2-1", "sb-2-1")
STDA: Final = runs.Paper("stda", _BOTH, sources.PRINTED, runs.STDA_TABLES, _SCHEMAS, runs.SPARSEST)
SGFT: Final = runs.Paper(
    "sgft",
    (*_BOTH, "ob-8-1", "sb-8-1", "reut20"),
    sources.PRINTED_2011,
    runs.SGFT_TABLES,
    {name: schema for name, schema in _SCHEMAS.items() if name not in ("features", "frequencies")},
    runs.TEN_FOLD,
)


def _reproduce(paper: runs.Paper, data: Path, out: Path, *, passes: int | None = None) -> Path:
    """Run the tables of a paper, III to V and Figure 2 of 2012, or 3 and 4 of 2011.

    Writes OUT/*.parquet, OUT/inputs.json and OUT/stda.html or OUT/sgft.html.

    Results of parts stay in OUT/cells, so an interrupted run resumes. Equal files give equal bytes, except for run
    times, in timings.parquet and on the page.

    Parameters
    ----------
    paper : Paper
        2012 (STDA) or 2011 (SGFT).
    data : Path
        Folder of the data sets, in it or in its subfolders; those that are missing are named on the page. Of each
        DOMAIN of reviews (books, dvd, electronics, kitchen), counts: DOMAIN/unlabeled.review of the processed corpus,
        else DOMAIN.svmlight, with feature_names.tsv, else DOMAIN/negative.review and positive.review; and text:
        DOMAIN.jsonl, with the labels negative and positive. And 20news-bydate.jsonl, and for 2011
        reuters21578.jsonl. All may be compressed, with the suffix .gz.
    out : Path
        Folder of the results.
    passes : int, optional
        Passes over the data; the papers' 20 by default.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InputError
        If none of the files is there, or one is invalid.
    """
    if passes is not None and passes < 1:
        raise InputError(f"passes={passes} must be at least 1.", code="invalid-option")
    protocol = runs.published_protocol(paper.name, passes)
    known = sources.choose_sources(*paper.sources)
    found, files = sources.find_sources(data, known)

    def compute(run: Run) -> Records:
        records: Records = {}
        for source, documents in run.documents(found, files):
            extend(records, runs.run_data_set(run, paper, protocol, source, documents))
        tested = {rule: truncation_claims(paper.name, records, rule) for rule in runs.RULES}
        return records | claims.judge_by_rules(tested, paper.rule)

    inputs: dict[str, Any] = {
        **protocol._asdict(),
        "missing": [source.title for source in sources.missing_sources(known, found)],
    }
    experiment = Experiment(paper.name, paper.schemas, partial(truncation_page, paper))
    return experiment.run(Run(out), compute, inputs, files)


reproduce_stda: Final = partial(_reproduce, STDA)
reproduce_sgft: Final = partial(_reproduce, SGFT)
