"""
Read from the scheduler's report what would help a Pod.
"""

from collections.abc import Mapping
from typing import Any

from kubectl_hami.values.wait import Remedy


def remedies(report: Mapping[str, Any]) -> Remedy:
    """Return what *report* says: its cause, its changes, or the Node that fits by now."""
    is_refused = report.get("verdict") == "refused"
    changes = report.get("changes") or ()
    return Remedy(
        cause=str(report.get("summary") or "") if is_refused else "",
        changes=tuple(f"{change.get('what')} (node {change.get('node')})" for change in changes),
        node=str(report.get("node") or ""),
    )
