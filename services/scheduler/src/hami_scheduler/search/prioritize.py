"""
Give each candidate Node 0 to 10 points, the answer to `/prioritize`.

Pure over a borrowed view. Neighbours: `filter` names the Nodes that fit, kube-scheduler adds its own scores.
"""

from collections.abc import Sequence

from hami_scheduler.search.node_rating import is_rated, rating, sign
from hami_scheduler.search.place_pod import try_node
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.reasons import Misfit
from hami_scheduler.values.request import PodRequest

PRIORITY_LIMIT = 10
"""
The best Node's points.

Source: https://github.com/kubernetes/kube-scheduler/blob/v0.34.4/extender/v1/types.go (`MaxExtenderPriority`)
"""


def priorities(request: PodRequest, names: Sequence[str], view: ClusterView) -> dict[str, int]:
    """
    Return the points of each of *names* by the Node policy of *request*: PRIORITY_LIMIT for the best, 0 for the worst.

    If all Nodes are equal, all get 0. Nodes without devices, and Nodes that do not fit, get 0 as well.
    """
    ledger = view.ledger
    allowances = view.allowances(request)
    needs_trial = is_rated(request)
    scores = ledger.node_scores()
    preference: dict[str, float] = {}
    for name in names:
        entry = ledger.node(name)
        found = try_node(request, name, ledger, allowances) if needs_trial else None
        if entry is None or isinstance(found, Misfit) or ledger.short_replicas(entry, request.replicas):
            continue
        added = rating(request, name, found, ledger) if found else 0.0
        preference[name] = sign(request) * (float(scores[entry.index]) + added)
    least, most = min(preference.values(), default=0.0), max(preference.values(), default=0.0)
    scale = PRIORITY_LIMIT / (most - least) if most > least else 0.0
    return {name: round((preference[name] - least) * scale) if name in preference else 0 for name in names}
