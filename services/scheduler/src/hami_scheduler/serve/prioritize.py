"""
The verb `/prioritize`: points for each candidate.

Neighbours: `decide.prioritize` computes them, `http` calls this.
"""

from collections.abc import Mapping, Sequence

from hami_scheduler.decide.prioritize import priorities
from hami_scheduler.serve.context import Context, Object, node_name


async def prioritize_nodes(
    context: Context, pod: Object, node_names: Sequence[str] | None, nodes: Sequence[Object] | None
) -> Mapping[str, int]:
    """
    Return 0 to 10 points for each candidate, by the Node policy of *pod*.

    Raises:
        NotReadyError: decisions cannot be made now.
    """
    names = [node_name(node) for node in nodes or ()] if node_names is None else node_names
    request = await context.read_when_ready(pod)
    return priorities(request, names, context.cluster.view)
