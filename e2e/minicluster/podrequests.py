"""
The resources that a Pod requests.

Owns the sum over containers, init containers and sidecars, and the test for extended resources. Functions of their
arguments. Neighbours: quotas, the scheduler and the kubelet count with it.
Source: k8s.io/component-helpers/resource/helpers.go (PodRequests), KEP-753.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction

from hamicommon.model import Object
from minicluster import quantity

Amounts = dict[str, Fraction]


def containers(spec: Object) -> Iterator[tuple[str, Object]]:
    """Yield each container with its field path, init containers first."""
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield f"spec.{field}[{index}]", container


def is_extended(resource: str) -> bool:
    """Return whether *resource* is an extended one: qualified, and not of Kubernetes itself."""
    return "/" in resource and not resource.split("/", 1)[0].endswith("kubernetes.io")


def pod_amounts(spec: Object, section: str) -> Amounts:
    """
    Return the amount of each resource that a Pod needs: of all its containers, or of its largest init container.

    Sidecars (init containers that restart) keep running beside everything that starts after them (KEP-753).
    """
    total: Amounts = {}
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("containers") or ():
        add(total, _amounts(container, section))
    for container in spec.get("initContainers") or ():
        amounts = _amounts(container, section)
        if container.get("restartPolicy") == "Always":
            add(sidecars, amounts)
            add(total, amounts)
            amounts = {}
        for name in amounts.keys() | sidecars.keys():
            peak[name] = max(
                peak.get(name, Fraction(0)), amounts.get(name, Fraction(0)) + sidecars.get(name, Fraction(0))
            )
    for name, amount in peak.items():
        total[name] = max(total.get(name, Fraction(0)), amount)
    add(total, {name: quantity.parse(amount) for name, amount in (spec.get("overhead") or {}).items()})
    return total


def _amounts(container: Object, section: str) -> Amounts:
    found = (container.get("resources") or {}).get(section) or {}
    return {name: quantity.parse(amount) for name, amount in found.items()}


def add(total: Amounts, amounts: Mapping[str, Fraction]) -> None:
    """Add *amounts* to *total*."""
    for name, amount in amounts.items():
        total[name] = total.get(name, Fraction(0)) + amount
