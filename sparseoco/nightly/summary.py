"""The nights of a run in a few lines of Markdown and a table, for places that show no HTML page."""

from typing import Any

from sparseoco.nightly.page import labelled, night_line
from sparseoco.nightly.records import read_rows, serving
from sparseoco.report.summary import plain
from sparseoco.report.wording import integer, percent
from sparseoco.storage.locations import Location


def nights_table(run: Location, *, limit: int = 100) -> list[dict[str, Any]]:
    """The last `limit` nights, the last first, as rows of text, ready for a Prefect table artifact."""
    return [
        {
            "night": row["night"],
            "documents": integer(row["documents"]),
            "new features": integer(row["new_terms"]),
            "unknown words": percent(row["unknown_share"]),
            "candidate": row["algorithm"] or "–",
            "parameters": labelled(row),
            "error": percent(row["error"]),
            "error of the model that served": percent(row["champion_error"]),
            "decision": "promoted" if row["promoted"] else "not promoted",
            "why": row["why"],
        }
        for row in reversed(read_rows(run, "history")[-limit:])
    ]


def nights_markdown(run: Location, name: str) -> str:
    """Which model serves, and the last night in a line."""
    history = read_rows(run, "history")
    served = serving(history)
    said = "No model serves yet." if served is None else f"The model of night {served['night']} serves: "
    if served is not None:
        said += f"{served['algorithm']} ({labelled(served)}), {integer(served['nonzeros'])} nonzero weights."
    last = [plain(night_line(history[-1]))] if history else []
    return "\n\n".join([f"# {plain(name)}", plain(said), *last]) + "\n"
