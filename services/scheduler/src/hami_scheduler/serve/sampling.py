"""
Tell whether kube-scheduler shows all Nodes or a sample of them, which hides room from whoever must say no.

Owns its formula. Neighbours: `extender` compares each call with it.
Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/scheduler/schedule_one.go (`numFeasibleNodesToFind`)
"""

_LEAST_NODES = 100
_LEAST_PERCENT = 5


def sample_size(node_count: int) -> int:
    """
    Return how many of *node_count* Nodes kube-scheduler asks about where `percentageOfNodesToScore` is not set.

    >>> [sample_size(count) for count in (100, 500, 1000, 5000, 10_000)]
    [100, 230, 420, 500, 500]
    """
    if node_count <= _LEAST_NODES:
        return node_count
    percent = max(50 - node_count // 125, _LEAST_PERCENT)
    return max(node_count * percent // 100, _LEAST_NODES)


def looks_sampled(candidate_count: int, node_count: int) -> bool:
    """Return whether *candidate_count* of *node_count* Nodes is just what a sample has, and not all of them."""
    return candidate_count < node_count and candidate_count == sample_size(node_count)
