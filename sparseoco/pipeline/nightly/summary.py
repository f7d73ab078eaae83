"""The nightly runs as a few lines of Markdown and a table, where an HTML page cannot be shown."""

from typing import Any

from sparseoco.core.formatting import integer, percent, plural
from sparseoco.pipeline.nightly.history import find_deployed, read_history
from sparseoco.pipeline.nightly.page import (
    deployed_line,
    increment_line,
    left_out_lines,
    measured_error,
    parameters_label,
)
from sparseoco.report.summary import MAX_ROWS, plain
from sparseoco.storage.locations import Location


def increments_table(run: Location) -> list[dict[str, Any]]:
    """The last `MAX_ROWS` increments, the latest first, as rows of text for a Prefect table artifact."""
    return [
        {
            "increment": row["increment"],
            "documents": integer(row["documents"]),
            "new features": integer(row["new_terms"]),
            "unknown words": percent(row["unknown_share"]),
            "candidate": row["algorithm"] or "–",
            "parameters": parameters_label(row),
            "error": percent(row["error"]),
            "deployed before": "–" if row["deployed"] is None else f"increment {row['deployed']}",
            "its error": percent(row["deployed_error"]),
            "decision": "promoted" if row["promoted"] else "not promoted",
            "reason": row["reason"],
        }
        for row in reversed(read_history(run, "history")[-MAX_ROWS:])
    ]


def nightly_markdown(run: Location, name: str) -> str:
    """The deployed model, and the last increment in a line."""
    history = read_history(run, "history")
    deployed = find_deployed(history, read_history(run, "history-rollbacks"))
    line = deployed_line(deployed)
    sentence = line[0].upper() + line[1:]
    if deployed is not None:
        row = deployed.row
        sentence += f": {row['algorithm']} ({parameters_label(row)}), {plural(row['nonzeros'], 'nonzero weight')}"
        sentence += f", {measured}" if (measured := measured_error(deployed)) else ""
    sentence += "."
    last = [plain(increment_line(history[-1]))] if history else []
    skipped = map(plain, left_out_lines(read_history(run, "history-quarantine")))
    return "\n\n".join([f"# {plain(name)}", *skipped, plain(sentence), *last]) + "\n"
