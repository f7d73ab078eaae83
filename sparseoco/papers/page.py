"""The tables of a reproduction → one HTML file that needs nothing else."""

from typing import Any, NamedTuple

from sparseoco.papers.claims import TITLES, in_all, shown, weigh_time
from sparseoco.papers.figures import STYLE, curves_figure
from sparseoco.papers.means import mean_and_error
from sparseoco.papers.problems import SOURCES
from sparseoco.papers.records import Records, Row
from sparseoco.report.html import Plot, environment, plot, plotly_script
from sparseoco.report.wording import integer


class Section(NamedTuple):
    """An experiment on the page: its figures and its methods, as in the file and standardised."""

    title: str
    experiment: Row
    beta_ons: float
    plots: list[Plot]
    methods: list[Row]
    standardised: list[Row]


class PanelSection(NamedTuple):
    """A panel of stocks on the page."""

    panel: Row
    plot: Plot
    methods: list[Row]


class Claim(NamedTuple):
    """A claim, and a row for every data set it was tried on."""

    text: str
    rows: list[Row]

    @property
    def verdict(self) -> str:
        """One word for all of them."""
        return in_all([row["holds"] for row in self.rows])


def render(records: Records, inputs: dict[str, Any]) -> str:
    """The page as text."""
    sections = [_section(records, row) for row in records["experiments"] if not row["standardised"]]
    panels = [_panel(records, row) for row in records["panels"]]
    plots = [plot for section in sections for plot in section.plots] + [section.plot for section in panels]
    context = {
        "inputs": inputs,
        **context_of([*records["claims"], *weigh_time(records)]),
        "facts": {
            "runs of a bandit on a data set": integer(inputs["repetitions"]),
            "draws of stocks": integer(inputs["draws"]),
        },
        "sections": sections,
        "panels": panels,
        "titles": TITLES,
        "plots": plots,
        "style": STYLE,
        "shown": shown,
        "plotly": plotly_script(),
    }
    return environment("sparseoco.papers").get_template("onseg.html.j2").render(context)


def context_of(claims: list[Row]) -> dict[str, Any]:
    """What every page says of a paper's claims, of rows of `records.CLAIMS`: `claims`, and `counts` by verdict."""
    grouped = [Claim(text, _of(claims, claim=text)) for text in dict.fromkeys(row["claim"] for row in claims)]
    verdicts = [claim.verdict for claim in grouped]
    counts = {word: verdicts.count(word) for word in ("yes", "in part", "no", "cannot be told")}
    return {"claims": grouped, "counts": counts}


def _of(rows: list[Row], **keys: Any) -> list[Row]:
    return [row for row in rows if all(row[key] == value for key, value in keys.items())]


def _section(records: Records, experiment: Row) -> Section:
    name = experiment["experiment"]
    curves = _of(records["curves"], experiment=name, standardised=False)
    levels = {"best fixed point of the ball": experiment["best_loss"], "x = 0": experiment["zero_loss"]}
    names = ("mean_loss", "loss_low", "loss_high")
    labels = ("rounds (log scale)", "mean loss so far")
    title = f"Mean loss so far, {TITLES[name]}"
    plots = [plot(f"{name}-loss", title, curves_figure(curves, names, levels, labels, 1.0))]
    if experiment["best_error"] is not None:
        names, labels = ("error_rate", "error_low", "error_high"), ("rounds (log scale)", "wrong so far, %")
        figure = curves_figure(curves, names, {"best fixed point": experiment["best_error"]}, labels, 100.0)
        plots.insert(0, plot(f"{name}-error", f"Share of wrong answers so far, {TITLES[name]}", figure))
    both = []
    for standardised in (False, True):
        keys = {"experiment": name, "standardised": standardised}
        ns = {row["method"]: 1e9 * row["seconds"] / row["rounds"] for row in _of(records["timings"], **keys)}
        both.append([row | {"ns": ns[row["method"]]} for row in _of(records["methods"], **keys)])
    beta = next(source.beta_ons for source in SOURCES if source.name == name)
    return Section(TITLES[name], experiment, beta, plots, *both)


def _panel(records: Records, panel: Row) -> PanelSection:
    name = panel["panel"]
    curves = _of(records["returns"], panel=name)
    levels = {"equal shares": panel["equal_shares"], "best stock in hindsight": panel["best_stock"]}
    labels = ("rounds (log scale)", f"mean return a {panel['period']} so far, %")
    figure = curves_figure(curves, ("mean_return", "low", "high"), levels, labels, 100.0)
    methods = []
    for method in dict.fromkeys(row["method"] for row in records["draws"]):
        draws = _of(records["draws"], panel=name, method=method)
        values = sorted(row["mean_return"] for row in draws)
        mean, error = mean_and_error(values)
        methods.append({**draws[0], "mean": mean, "error": error, "least": values[0], "most": values[-1]})
    return PanelSection(panel, plot(name, f"Mean return so far, {TITLES[name]}", figure), methods)
