"""What all pages share: templates, figures as JSON, and the script that draws them."""

from functools import cache
from typing import Any, NamedTuple

import plotly.graph_objects as go
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from sparseoco.report import formatting


class Plot(NamedTuple):
    """A figure: the id of its element, and its JSON, safe inside a script element."""

    id: str
    title: str
    spec: Markup


def plot(name: str, title: str, figure: go.Figure) -> Plot:
    """A figure prepared for a template."""
    # Plotly's own encoder writes <, > and / as \u003c, \u003e and \u002f: it cannot end the script element.
    return Plot(f"figure-{name}", title, Markup(figure.to_json(engine="json")))


@cache
def plotly_script() -> Markup:
    """Plotly's JavaScript library."""
    return Markup(get_plotlyjs())


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
            *("amount", "plus_minus"),
        )
    }
    environment.filters.update(names)
    return environment
