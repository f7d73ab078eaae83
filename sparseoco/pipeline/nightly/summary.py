"""The nights of a run in a few lines of Markdown and a table, for places that show no HTML page."""

from typing import Any

from sparseoco.pipeline.nightly.history import find_deployed, read_rows
from sparseoco.pipeline.nightly.page import labelled, night_line, serving_line
from sparseoco.report.summary import plain
from sparseoco.report.wording import integer, percent, plural
from sparseoco.storage.locations import Location


def nights_table(run: Location, *, limit: int = 100) -> list[dict[str, Any]]:
    """The last `limit` nights, the last first, as rows of text, ready for a Prefect table artifact."""
    return [
        {
            "night": row["increment"],
            "documents": integer(row["documents"]),
            "new features": integer(row["new_terms"]),
            "unknown words": percent(row["unknown_share"]),
            "candidate": row["algorithm"] or "–",
            "parameters": labelled(row),
            "error": percent(row["error"]),
            "error of the model that served": percent(row["deployed_error"]),
            "decision": "promoted" if row["promoted"] else "not promoted",
            "why": row["reason"],
        }
        for row in reversed(read_rows(run, "history")[-limit:])
    ]


def nights_markdown(run: Location, name: str) -> str:
    """Which model serves, and the last night in a line."""
    history = read_rows(run, "history")
    served = find_deployed(history, read_rows(run, "history-rollbacks"))
    line = serving_line(served)
    said = line[0].upper() + line[1:]
    if served is not None:
        row = served.row
        said += f": {row['algorithm']} ({labelled(row)}), {plural(row['nonzeros'], 'nonzero weight')}"
    said += "."
    last = [plain(night_line(history[-1]))] if history else []
    return "\n\n".join([f"# {plain(name)}", plain(said), *last]) + "\n"
