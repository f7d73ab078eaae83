"""What every page is put together with: templates, figures as JSON, the one script that draws them."""

from functools import cache
from typing import Any, NamedTuple

import plotly.graph_objects as go
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from sparseoco.report import wording


class Plot(NamedTuple):
    """A figure on the page: the id of its place, and its JSON, safe inside a script element."""

    id: str
    title: str
    spec: Markup


def plot(name: str, title: str, figure: go.Figure) -> Plot:
    """A figure made ready for a template."""
    # Plotly's own encoder writes <, > and / as \u003c, \u003e and \u002f: no text in it can end the script element.
    return Plot(f"figure-{name}", title, Markup(figure.to_json(engine="json")))


@cache
def plotly_script() -> Markup:
    """The library's own script, which is not data."""
    return Markup(get_plotlyjs())


@cache
def environment(package: str = "sparseoco.report") -> Environment:
    """The templates of a package, and those of the report, whose style and script all pages share."""
    loaders = [PackageLoader(name, "templates") for name in dict.fromkeys((package, "sparseoco.report"))]
    environment = Environment(
        loader=ChoiceLoader(loaders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names: dict[str, Any] = {
        name: getattr(wording, name)
        for name in (
            *("percent", "percent_with_error", "integer", "plural", "duration", "parameters", "signed"),
            *("amount", "plus_minus"),
        )
    }
    environment.filters.update(names)
    return environment
