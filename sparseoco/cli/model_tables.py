"""Explanations and comparisons of models, as tables on the terminal."""

from typing import TYPE_CHECKING, Any

from sparseoco.cli.console import cell, output, print_line

if TYPE_CHECKING:
    from sparseoco.pipeline.explanation import Explanation
    from sparseoco.pipeline.model_comparison import ModelComparison, WeightChange


def print_explanation(found: "Explanation") -> None:
    """Print the prediction of a text, and what its terms add to the margin."""
    from rich.table import Table

    from sparseoco.core.formatting import percent, signed

    head = cell(f"{found.id}: " if found.id else "")
    head.append(cell(_prediction(found.prediction), "bold"))
    if found.probability is not None:
        head.append(cell(f"  (probability of {found.of}: {percent(found.probability)})"))
    output.print(head)
    table = Table("term", box=None, pad_edge=False)
    for name in ("value", "weight", "adds"):
        table.add_column(name, justify="right")
    for term in found.terms:
        numbers = f"{term.value:.4g}", signed(term.weight), _added(term.contribution)
        table.add_row(cell(term.feature), *numbers, style="" if term.contribution > 0 else "dim")
    others = found.known - len(found.terms)
    if others > 0:
        table.add_row(cell(f"{others:,} other terms", "italic"), "", "", _added(found.rest))
    if found.intercept:
        table.add_row(cell("intercept", "italic"), "", "", _added(found.intercept))
    kind = f"margin of {found.of}" + (f" over {found.against}" if found.against else "") if found.of else "prediction"
    table.add_row(cell(kind, "bold"), "", "", _added(found.margin))
    if found.threshold:
        table.add_row(cell("threshold"), "", "", _added(found.threshold))
    output.print(table)
    output.print()


def _prediction(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return (", ".join(value) or "no class") if isinstance(value, list) else str(value)


def _added(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−")


def print_comparison(found: "ModelComparison") -> None:
    """Print what changed between two models."""
    from rich.table import Table

    from sparseoco.core.formatting import integer, metric_name, metric_with_error
    from sparseoco.training.metrics.classes import trained_on_sentence

    table = Table("", "first", "second", "in both", box=None, pad_edge=False)
    for name, counts in (("features used", found.features), ("nonzero weights", found.weights)):
        table.add_row(name, *map(integer, counts))
    for row in found.evaluations:
        values = (
            (integer(value) if row.name == "rows" else metric_with_error(row.name, value, None))
            for value in (row.first, row.second)
        )
        table.add_row("evaluated on" if row.name == "rows" else metric_name(row.name), *values, "")
    output.print(table)
    if found.cosine is not None:
        output.print(f"cosine of the weights: {found.cosine:.4f}")
    if found.evaluations and not found.same_text:
        output.print("The models were evaluated on different text: give INPUT to evaluate both on the same.")
    for which, names in zip(("first", "second"), found.trained_on, strict=True):
        if names:
            print_line(f"{which}: {trained_on_sentence(names)}")
    if found.options:
        table = Table("option", "first", "second", box=None, pad_edge=False)
        for option in found.options:
            table.add_row(cell(option.name), cell(_short(option.first)), cell(_short(option.second)))
        output.print()
        output.print(table)
    for title, rows in (
        ("gained", found.gained),
        ("lost", found.lost),
        ("changed most", found.changed),
        ("intercepts", found.intercepts),
    ):
        if rows:
            output.print()
            output.print(_weights_table(title, rows))


def _weights_table(title: str, rows: "list[WeightChange]") -> Any:
    from rich.table import Table

    from sparseoco.core.formatting import signed

    table = Table(title, "class", box=None, pad_edge=False)
    for name in ("first", "second", "change"):
        table.add_column(name, justify="right")
    for row in rows:
        weights = ("–" if value == 0 else signed(value) for value in (row.first, row.second))
        table.add_row(cell(row.feature), cell(row.of), *weights, signed(row.change))
    return table


def _short(value: Any) -> str:
    text = "–" if value is None else str(value)
    return text if len(text) <= 60 else text[:59] + "…"
