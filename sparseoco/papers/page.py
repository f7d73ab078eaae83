"""What the pages of all experiments share: their claims, their figures' lines, one self-contained HTML file."""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

import plotly.graph_objects as go

from sparseoco.papers.claims import IN_PART, INCONCLUSIVE, NO, YES, format_mean, grouped_claims
from sparseoco.papers.tables import Row
from sparseoco.report.html import Plot, environment, plot, plotly_script

DASHES: Final = ("solid", "dash", "dot")


class Plots(list[Plot]):
    """The figures of a page."""

    def add(self, name: str, title: str, figure: go.Figure) -> Plot:
        """Keep a figure for the page, and give it to the template."""
        self.append(plot(name, title, figure))
        return self[-1]


def render(
    template: str,
    inputs: Mapping[str, Any],
    claims: Sequence[Row],
    plots: Plots,
    facts: Mapping[str, str],
    **context: Any,
) -> str:
    """The HTML of a page; `context` is what its template needs besides what all pages have."""
    grouped = grouped_claims(claims)
    counts = Counter(claim.verdict for claim in grouped)
    shared = {
        "inputs": inputs,
        "claims": grouped,
        "counts": {word: counts[word] for word in (YES, IN_PART, NO, INCONCLUSIVE)},
        "plots": plots,
        "facts": facts,
        "plotly": plotly_script(),
        "format_mean": format_mean,
    }
    return environment("sparseoco.papers").get_template(f"{template}.html.j2").render(shared | context)


def add_line(
    figure: go.Figure,
    name: str,
    x: Sequence[Any],
    y: Sequence[float],
    colour: str,
    hover: str,
    *,
    dash: str = "solid",
    width: float = 2,
    mode: str = "lines",
    **options: Any,
) -> None:
    """A line with its entry in the legend; `hover` is the template of a point's label after the name."""
    figure.add_scatter(
        x=x,
        y=y,
        name=escape(name, quote=False),
        mode=mode,
        line={"color": colour, "width": width, "dash": dash},
        hovertemplate=f"<b>{escape(name, quote=False)}</b>{hover}<extra></extra>",
        **options,
    )
