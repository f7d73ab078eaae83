"""What the pages of all experiments share: their claims, one self-contained HTML file."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sparseoco.papers.claims import FIRST, Finding, format_comparison, format_mean, judge, ordered_claims
from sparseoco.papers.tables import Records, select
from sparseoco.report.html import render_page


def render(
    template: str,
    inputs: Mapping[str, Any],
    records: Records,
    facts: Mapping[str, str],
    *,
    timing_claims: Sequence[Finding] = (),
    **context: Any,
) -> str:
    """The HTML of a page; `context` is what its template needs besides what all pages have.

    Claims on run times are judged among themselves, so that the verdicts in claims.parquet do not depend on them.
    """
    timed = judge(timing_claims)
    ordered = ordered_claims(records["claims"] + timed["claims"])
    comparisons = records["comparisons"] + timed["comparisons"]
    counts = Counter(claim.verdict for claim in ordered)

    def details(claim: str, where: str) -> list[str]:
        return [format_comparison(row) for row in select(comparisons, claim=claim, where=where)]

    shared = {
        "inputs": inputs,
        "claims": ordered,
        "counts": {word: counts[word] for word in FIRST},
        "n_comparisons": len(records["comparisons"]),
        "n_timed": len(timed["comparisons"]),
        "details": details,
        "facts": facts,
        "format_mean": format_mean,
    }
    return render_page(template, shared | context, "sparseoco.papers")
