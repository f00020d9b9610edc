"""
The table of `waiting`.
"""

from collections.abc import Mapping, Sequence

from rich.table import Table

from kubectl_hami.show.table import seconds, table
from kubectl_hami.values.cluster import ClusterState
from kubectl_hami.values.wait import Remedy

Helped = Mapping[tuple[str, str], Remedy]
"""What would help, by namespace and Pod."""


def waiting_table(states: Sequence[ClusterState], helped: Sequence[Helped], *, is_wide: bool = False) -> Table:
    """Return a row for each Pod that waits; wide rows have what it asks."""
    has_clusters = len(states) > 1
    rows = []
    for state, found in zip(states, helped, strict=True):
        for one in state.waiting:
            remedy = found.get((one.namespace, one.pod))
            rows.append(
                (
                    *((state.cluster,) if has_clusters else ()),
                    one.namespace,
                    one.pod,
                    seconds((state.taken_at - one.since).total_seconds()),
                    *((one.asks,) if is_wide else ()),
                    remedy.cause if remedy and remedy.cause else one.cause or "the scheduler has not said",
                    _help(remedy),
                )
            )
    heads = [*(("CLUSTER",) if has_clusters else ()), "NAMESPACE", "POD", ">AGE", *(("ASKS",) if is_wide else ())]
    return table([*heads, "~CAUSE", "~IT WOULD FIT"], rows)


def _help(remedy: Remedy | None) -> str:
    if remedy is None:
        return "-"
    if remedy.node:
        return f"now, on node {remedy.node}"
    if not remedy.changes:
        return "by no change that was found"
    more = f", or by {len(remedy.changes) - 1} other changes" if len(remedy.changes) > 1 else ""
    return remedy.changes[0] + more.replace("1 other changes", "another change")
