"""
What a Pod asks for, read from its object.

Owns `PodRequest`: every container's requests in Pod order, the constraints the Pod's annotations add, and the
policies that rank what fits. Knows nothing of Nodes. Neighbours: `vendor` parses a container's resources, `rules` the
annotations, `place_pod` tries the request on a Node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hami_scheduler.values.rules import DevicePolicy, Rules, read_device_policy
from hami_scheduler.values.vendor import VendorFrame
from hamicommon.held import ContainerKind, containers_of
from hamicommon.model import Request, ScoringWeights
from hamicommon.wire import keys
from hamicommon.wire.scoring_weights import decode_scoring_weights


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """What one container asks."""

    name: str
    kind: ContainerKind
    requests: tuple[Request, ...] = ()
    """At most one per vendor; empty if it asks for no device."""


@dataclass(frozen=True, slots=True)
class Policies:
    """How Nodes and devices are ranked if a Pod does not say."""

    node: str = "binpack"
    device: str = "spread"

    @classmethod
    def named(cls, node: str | None, device: str | None) -> "Policies":
        """Return the policies *node* and *device*; an empty one is the default."""
        defaults = cls()
        return cls(node or defaults.node, device or defaults.device)


@dataclass(frozen=True, slots=True)
class PodRequest:
    """What one Pod asks for, and its rules for the devices it gets."""

    uid: str
    namespace: str
    name: str
    containers: tuple[ContainerRequest, ...]
    """Init containers first, in Pod order."""
    rules: Mapping[str, Rules]
    """Per vendor key, for each vendor asked."""
    node_policy: str
    """`spread` ranks the emptiest Node first; anything else ranks the fullest first."""
    device_policy: DevicePolicy
    weights: ScoringWeights
    vendors: Mapping[str, VendorFrame] = field(default_factory=dict, compare=False)
    """Per vendor key, for each vendor asked."""

    @property
    def asks_for_devices(self) -> bool:
        """Whether any container asks for any device."""
        return bool(self.rules)

    @property
    def kinds(self) -> tuple[ContainerKind, ...]:
        """The kind of each container, in Pod order."""
        return tuple(container.kind for container in self.containers)


def read_request(pod: Mapping[str, Any], vendors: tuple[VendorFrame, ...], defaults: Policies) -> PodRequest:
    """
    Return what *pod*, a v1 Pod object, asks of *vendors*.

    Raises:
        DecodeError: the Pod's device-scoring weights cannot be read. HAMi refuses such a Pod until they are fixed.
    """
    metadata = pod.get("metadata") or {}
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    containers = read_containers(pod, vendors)
    asked = {request.vendor for container in containers for request in container.requests}
    weights = ScoringWeights()
    if asked and keys.SCORING_WEIGHTS in annotations:
        weights = decode_scoring_weights(annotations[keys.SCORING_WEIGHTS])
    frames = {frame.key: frame for frame in vendors if frame.key in asked}
    device_policy = read_device_policy(
        annotations.get(keys.GPU_SCHEDULER_POLICY, defaults.device),
        is_numa_bound=any(frame.binds_to_numa(annotations) for frame in vendors if frame.numa_bind_key in annotations),
    )
    return PodRequest(
        uid=metadata.get("uid") or "",
        namespace=metadata.get("namespace") or "default",
        name=metadata.get("name") or "",
        containers=containers,
        rules={key: frame.read_rules(annotations, device_policy) for key, frame in frames.items()},
        node_policy=annotations.get(keys.NODE_SCHEDULER_POLICY, defaults.node),
        device_policy=device_policy,
        weights=weights,
        vendors=frames,
    )


def read_containers(pod: Mapping[str, Any], vendors: tuple[VendorFrame, ...]) -> tuple[ContainerRequest, ...]:
    """Return the containers of *pod*, init containers first, each with what it asks of *vendors*."""
    return tuple(_read_container(container, kind, vendors) for container, kind in containers_of(pod))


def _read_container(
    container: Mapping[str, Any], kind: ContainerKind, vendors: tuple[VendorFrame, ...]
) -> ContainerRequest:
    resources = container.get("resources") or {}
    names = {name for part in ("limits", "requests") for name in resources.get(part) or ()}
    parsed = [frame.parse_request(resources) for frame in vendors if not names.isdisjoint(frame.resource_set)]
    requests = tuple(request for request in parsed if request is not None and request.count > 0)
    return ContainerRequest(container.get("name") or "", kind, requests)
