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
SPARSE: Final = 0.8
"""Sparsity at which methods are compared, and from which on weights count as sparse."""
ALIKE: Final = 2.0
"""The largest ratio of numbers of features that count as as many."""
WHEN_SPARSE, LOST = "error when sparse", "error lost when sparse"


class SetRows(NamedTuple):
    """The rows of a data set: with a rule's λ, and of all λ."""

    title: str
    folds: Sequence[Row]
    paths: Sequence[Row]

    def shares(self, method: str, name: str) -> list[float] | None:
        """A share of a method per fold: its error or sparsity; as the negative of sparsity, nonzero weights; its error
        when sparse, or what that loses against the least error of its λ. None if not every fold has it."""
        if name in (WHEN_SPARSE, LOST):
            errors = self.errors_at(method, SPARSE)
            least = self._least(method) if name == LOST else [0.0] * len(errors or ())
            return errors and [error - other for error, other in zip(errors, least, strict=True)]
        rows = select(self.folds, method=method)
        return [-row["sparsity"] for row in rows] if name == "nonzero weights" else column(rows, name)

    def text(self, method: str, name: str) -> str:
        """Mean error, and sparsity in parentheses, as in the papers' tables; or the mean error when sparse."""
        if name in (WHEN_SPARSE, LOST):
            text = errors_text(self.errors_at(method, SPARSE))
            return f"least error {percent(mean(self._least(method)))}, then {text}" if name == LOST else text
        rows = select(self.folds, method=method)
        return f"{percent(mean(column(rows, 'error')))} ({percent(mean(column(rows, 'sparsity')))})"

    def mistakes(self, method: str) -> set[str]:
        """The documents that are predicted wrongly."""
        return {document for row in select(self.folds, method=method) for document in row["mistakes"].split()}

    def errors_at(self, method: str, sparsity: float) -> list[float] | None:
        """`error_at` in every fold; None if the λ of a fold do not enclose this sparsity."""
        errors = [runs.error_at(path, sparsity) for path in self._paths(method)]
        found = [error for error in errors if error is not None]
        return found if len(found) == len(errors) else None

    def _least(self, method: str) -> list[float]:
        return [min(column(path, "error")) for path in self._paths(method)]

    def _paths(self, method: str) -> list[list[Row]]:
        """The rows of the λ of a method, fold by fold."""
        return grouped(select(self.paths, method=method), "fold")


def errors_text(errors: Sequence[float] | None) -> str:
    """The mean of errors at a sparsity that not every λ path reaches."""
    return "not reached in every fold" if errors is None else percent(mean(errors))


def with_mean(records: Records, found: list[Finding], *, primary: bool) -> list[Finding]:
    """The findings of a claim on every set and, where it was compared on sets of two or more corpora, on their mean,
    where it may be primary.

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
    return [*found, found[0]._replace(where=MEAN, here=here, evidence=tuple(evidence), primary=primary)]


# ----------------------------------------------------------------------------------------------------------------------
# Measures of the claims in claims.toml, each on every data set. Methods are compared fold by fold, with the λ of a
# rule, and at equal sparsity, where no rule matters.


CLAIMS: Final = {name: claims.read_claims(__file__, name) for name in ("stda", "sgft")}

_pair = partial(Pair, percent=True, overlap=claims.FOLDS_OVERLAP)
"""Shares in the ten folds of a cross-validation."""


def truncation_claims(name: str, records: Records, rule: str) -> list[Finding]:
    """The claims of a paper, stda or sgft, with this rule for λ: on every set, and all but those on bounds and printed
    results on the mean of the sets."""
    measures = Measures(records | {table: select(records[table], rule=rule) for table in ("folds", "results")})
    found: list[Finding] = []
    for claim in CLAIMS[name]:
        several = claim.test == "at_least"  # in the mean, each of them is compared before they are counted
        own = claims.find_evidence([claim._replace(test="less") if several else claim], measures)
        own = own if claim.measure == "printed" else with_mean(records, own, primary=claim.primary)
        found += [_at_least(row, claim.needed) for row in own] if several else own
    return found


def _at_least(row: Finding, needed: int) -> Finding:
    parts = [part for part in row.evidence if isinstance(part, Comparison)]
    return row._replace(evidence=(claims.at_least(needed, *parts),))


class Measures(NamedTuple):
    """What the claims are tested on: `measure` in claims.toml is the name of a method."""

    records: Records

    def _sets(self) -> Iterator[tuple[str, SetRows]]:
        for row in self.records["sets"]:
            folds, paths = (select(self.records[table], set=row["set"]) for table in ("folds", "paths"))
            yield row["set"], SetRows(row["title"], folds, paths)

    def compared(
        self, pairs: Sequence[Sequence[str]], shares: Sequence[str] = ("error",), factor: float = 1.0
    ) -> Iterator[Measured]:
        """Shares of both methods of each pair, of the first times a factor, on every set that has the methods."""
        names = list(dict.fromkeys(name for pair in pairs for name in pair))
        for _, own in self._sets():
            if not {*names} <= {*column(own.folds, "method")}:
                continue
            values = []
            for share in shares:
                for ours, theirs in pairs:
                    left, right = own.shares(ours, share), own.shares(theirs, share)
                    what = f"{factor:g} × {ours} − {theirs}" if factor != 1 else f"{ours} − {theirs}"
                    found = left and right and _pair([factor * one for one in left], right, f"{what}, {share}")
                    if found and share == "error":
                        wrong, wrong_there = own.mistakes(ours), own.mistakes(theirs)
                        found = found._replace(only=(len(wrong - wrong_there), len(wrong_there - wrong)))
                    values.append(found or None)
            yield Measured(own.title, "; ".join(f"{name}: {own.text(name, shares[0])}" for name in names), values)

    def lines(self, ours: str, theirs: str) -> Iterator[Measured]:
        """Figure 2 of 2012, where both methods select features in every fold, of two folds or more; undecided where
        one has no λ with about as many as the other."""
        for name, own in self._sets():
            rows = select(self.records["frequencies"], set=name)
            lines = [grouped(select(rows, method=method), "fold") for method in (ours, theirs)]
            folds = [[line[0]["fold"] for line in each] for each in lines]
            if not len(folds[0]) > 1 or folds[0] != folds[1]:
                continue
            shares = [
                mean(float(a < b) for a, b in zip(*(column(line, "count") for line in both), strict=True))
                for both in zip(*lines, strict=True)
            ]
            first = [each[0] for each in lines]
            selected = " and ".join(integer(line[0]["selected"]) for line in first)
            half = " and ".join(integer(line[len(line) // 2]["count"]) for line in first)
            here = (
                f"{percent(mean(shares))} of the line is below; in the first fold half of the selected features "
                f"({selected}) occur no more than {half} times"
            )
            pair = _pair([0.5] * len(shares), shares, "half − share of the line that is below")
            numbers = [[line[0]["selected"] for line in both] for both in zip(*lines, strict=True)]
            alike = all(max(both) <= ALIKE * min(both) for both in numbers)
            yield Measured(own.title, here if alike else f"{here}; not as many", [pair if alike else None])

    def norms_below(self, methods: Sequence[str], bound: float) -> Iterator[Measured]:
        """Whether the norm of a coordinate's history stays below the bound in every fold, with the λ of the rule."""
        for _, own in self._sets():
            texts, holds = [], []
            for name in methods:
                norms = {(row["fold"], row["lam"]): row["norm"] for row in select(own.paths, method=name)}
                largest = max(norms[row["fold"], row["lam"]] for row in select(own.folds, method=name))
                holds.append(largest < bound)
                texts.append(f"{name}: at most {largest:,.4g}, and {max(norms.values()):,.4g} with any λ")
            yield Measured(own.title, "; ".join(texts), holds)

    def printed(self, methods: Sequence[str]) -> Iterator[Measured]:
        """Errors at the printed sparsity, of no rule, against the printed errors. Those are means of ten folds, too,
        with a spread like ours: the variance is twice that of ours."""
        for name, own in self._sets():
            texts, values = [], []
            for method in methods:
                rows = select(self.records["results"], set=name, method=method)
                row = next((row for row in rows if row["paper_error"] is not None), None)
                if row:
                    errors, paper = own.errors_at(method, row["paper_sparsity"]), row["paper_error"]
                    texts.append(f"{method}: {errors_text(errors)} against {percent(paper)}")
                    twice = 2 * claims.FOLDS_OVERLAP + 1 / len(errors or [0.0])
                    values.append(_pair(errors, [paper] * len(errors), method, overlap=twice) if errors else None)
            if values:
                yield Measured(own.title, "; ".join(texts), values)


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
        sections=[_section(records, row, methods, paper.pair) for row in records["sets"]],
        samples=runs.SAMPLES if paper.name == "stda" else {},
    )


def _section(records: Records, data_set: Row, methods: Sequence[str], pair: Sequence[str]) -> dict[str, Any]:
    """A data set: error against sparsity; of two classes, Figure 2 and the features that only one of a pair selects."""
    name, title = data_set["set"], data_set["title"]
    chart = path_figure(select(records["paths"], set=name), methods)
    path = charts.plot(f"path-{name}", f"Error against sparsity, {title}", chart)
    frequencies, rows = None, select(records["frequencies"], set=name, fold=runs.HELD_OUT)
    if rows:
        heading = f"Occurrences of the selected features, {title}"
        frequencies = charts.plot(f"frequencies-{name}", heading, frequencies_figure(rows, pair))
    features = select(records["features"], set=name)
    samples = [(method, select(features, method=method)) for method in pair] if features else []
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


def frequencies_figure(rows: Sequence[Row], pair: Sequence[str]) -> charts.Chart:
    """Figure 2: occurrences of the selected features, from the rarest."""
    drawn = [
        row
        | {"percent": 100 * row["share"], "shown": max(row["count"], charts.ZERO)}
        | {"line": f"{row['method']}, {integer(row['selected'])} features"}
        for row in rows
    ]
    looks = {
        row["line"]: {"colour": charts.COLOURS[k], "dash": charts.DASHES[k], "heading": method, "steps": True}
        for k, method in enumerate(pair)
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
_MORE: Final = ("ob-8-1", "sb-8-1", "reut20")
_PAIRS: Final = (runs.STDA_INF, runs.RDA), (runs.SGFT_2, runs.SG_L1)
STDA: Final = runs.Paper("stda", _BOTH, sources.PRINTED, runs.STDA_TABLES, runs.SPARSEST, _PAIRS[0])
SGFT: Final = runs.Paper("sgft", (*_BOTH, *_MORE), sources.PRINTED_2011, runs.SGFT_TABLES, runs.TEN_FOLD, _PAIRS[1])


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

    inputs = protocol._asdict() | {"missing": sources.missing_titles(known, found)}
    experiment = Experiment(paper.name, _SCHEMAS, partial(truncation_page, paper))
    return experiment.run(Run(out), compute, inputs, files)


reproduce_stda: Final = partial(_reproduce, STDA)
reproduce_sgft: Final = partial(_reproduce, SGFT)
