"""
Leave out of a picture what somebody does not ask for.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kubectl_hami.values.cluster import ClusterState, Device


@dataclass(frozen=True, slots=True)
class Filter:
    """What is wanted; an empty field accepts everything."""

    namespace: str = ""
    node: str = ""
    model: str = ""
    """A part of the device's model, in any case."""
    pods: frozenset[tuple[str, str]] | None = None
    """Namespace and name of the only Pods; None accepts all."""

    def accepts(self, namespace: str, pod: str) -> bool:
        """Return whether what a Pod holds or asks is wanted."""
        return self.namespace in {"", namespace} and (self.pods is None or (namespace, pod) in self.pods)

    @property
    def is_of_pods(self) -> bool:
        """Whether devices are wanted only for their Pods."""
        return bool(self.namespace) or self.pods is not None


def narrowed(state: ClusterState, wanted: Filter) -> ClusterState:
    """Return *state* with the Nodes, devices, shares and waiting Pods that *wanted* accepts."""
    nodes = [
        replace(node, devices=tuple(_devices(node.devices, wanted)))
        for node in state.nodes
        if wanted.node in {"", node.name}
    ]
    is_partial = wanted.is_of_pods or bool(wanted.model)
    return replace(
        state,
        nodes=tuple(node for node in nodes if node.devices or not is_partial),
        waiting=tuple(one for one in state.waiting if wanted.accepts(one.namespace, one.pod)),
        namespaces=tuple(one for one in state.namespaces if wanted.namespace in {"", one.name}),
    )


def _devices(devices: tuple[Device, ...], wanted: Filter) -> Iterator[Device]:
    for device in devices:
        shares = tuple(share for share in device.shares if wanted.accepts(share.namespace, share.pod))
        if wanted.model.lower() in device.model.lower() and (shares or not wanted.is_of_pods):
            yield replace(device, shares=shares)
