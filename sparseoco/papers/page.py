"""What the pages of all experiments share: their claims, one self-contained HTML file."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sparseoco.papers.claims import IN_PART, INCONCLUSIVE, NO, YES, format_mean, grouped_claims
from sparseoco.papers.tables import Row
from sparseoco.report.html import environment


def render(
    template: str,
    inputs: Mapping[str, Any],
    claims: Sequence[Row],
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
        "facts": facts,
        "format_mean": format_mean,
    }
    return environment("sparseoco.papers").get_template(f"{template}.html.j2").render(shared | context)
