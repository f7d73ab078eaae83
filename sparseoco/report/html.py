"""What all pages share: templates, and figures drawn for them."""

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sparseoco.core import formatting
from sparseoco.report.charts import Chart, HeatMap
from sparseoco.report.heat_map import draw_heat_map
from sparseoco.report.svg import draw_chart

_HEADING: Final = re.compile(r"<h2>(.*?)</h2>", re.DOTALL)


class Plot(NamedTuple):
    """A figure of a page: its title, and its HTML."""

    title: str
    html: Markup


def plot(name: str, title: str, chart: Chart | HeatMap) -> Plot:
    """A chart drawn for a template; `name` is unique on its page."""
    draw = draw_heat_map(chart, name, title) if isinstance(chart, HeatMap) else draw_chart(chart, name, title)
    return Plot(title, draw)


def render_page(template: str, context: Mapping[str, Any], package: str = "sparseoco.report") -> str:
    """A page as text: TEMPLATE.html.j2 of a package, filled in."""
    return _environment(package).get_template(f"{template}.html.j2").render(context)


def linked(content: Markup) -> tuple[Markup, list[tuple[str, Markup]]]:
    """The sections of a page with an id for every second-level heading, and the ids and headings in order."""
    headings: list[tuple[str, Markup]] = []
    seen: Counter[str] = Counter()

    def link(found: re.Match[str]) -> str:
        heading = Markup(found[1])
        words = "-".join(re.findall(r"\w+", heading.striptags().lower()))
        seen[words] += 1
        headings.append((words if seen[words] == 1 else f"{words}-{seen[words]}", heading))
        return f'<h2 id="{headings[-1][0]}">{heading}</h2>'

    return Markup(_HEADING.sub(link, content)), headings


@cache
def _environment(package: str) -> Environment:
    """The templates of a package, and the report's, whose style sheet and script all pages share."""
    loaders = [PackageLoader(name, "templates") for name in dict.fromkeys((package, "sparseoco.report"))]
    environment = Environment(
        loader=ChoiceLoader(loaders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names: dict[str, Any] = {
        name: getattr(formatting, name)
        for name in (
            *("percent", "percent_with_error", "integer", "plural", "duration", "parameters", "signed"),
            *("amount", "plus_minus", "metric_name", "metric_with_error"),
        )
    }
    environment.filters.update(names | {"linked": linked})
    return environment
