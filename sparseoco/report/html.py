"""What all pages share: templates, and figures drawn for them."""

from functools import cache
from typing import Any, NamedTuple

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sparseoco.report import formatting
from sparseoco.report.charts import Chart, HeatMap
from sparseoco.report.heat_map import draw_heat_map
from sparseoco.report.svg import draw_chart


class Plot(NamedTuple):
    """A figure of a page: its title, and its HTML."""

    title: str
    html: Markup


def plot(name: str, title: str, chart: Chart | HeatMap) -> Plot:
    """A chart drawn for a template; `name` is unique on its page."""
    draw = draw_heat_map(chart, name, title) if isinstance(chart, HeatMap) else draw_chart(chart, name, title)
    return Plot(title, draw)


@cache
def environment(package: str = "sparseoco.report") -> Environment:
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
    environment.filters.update(names)
    return environment
