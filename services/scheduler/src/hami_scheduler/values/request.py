"""
What a Pod asks for, read from its object.

Owns `PodRequest`: every container's requests in Pod order, the constraints the Pod's annotations add, and the
policies that rank what fits. Knows nothing of Nodes. Neighbours: `vendor` parses a container's resources, `constraints`
and `policies` the annotations, `place_pod` tries the request on a Node.
"""

from collections.abc import Hashable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from hami_scheduler.values.constraints import Constraints
from hami_scheduler.values.policies import DevicePolicy, Policies, read_device_policy
from hami_scheduler.values.vendor import VendorRules, resources_counted
from hamicommon.model import ScoringWeights
from hamicommon.pod.amounts import effective_counts
from hamicommon.pod.containers import ContainerKind
from hamicommon.pod.reading import Container, read_pod
from hamicommon.vendors import nvidia
from hamicommon.wire import keys
from hamicommon.wire.go.strings import BLANKS
from hamicommon.wire.policies import decode_scoring_weights

Replicas = tuple[tuple[str, int], ...]
"""Resource and count of what a kubelet hands out to one Pod, sorted; without resources of which it asks none."""


@dataclass(frozen=True, slots=True)
class PodRequest:
    """What one Pod asks for, and its rules for the devices it gets."""

    uid: str
    namespace: str
    name: str
    containers: tuple[Container, ...]
    """Init containers first, in Pod order."""
    constraints: Mapping[str, Constraints]
    """Per vendor key, for each vendor asked."""
    node_policy: str
    """`spread` ranks the emptiest Node first; anything else ranks the fullest first."""
    device_policy: DevicePolicy
    weights: ScoringWeights
    vendors: Mapping[str, VendorRules] = field(default_factory=dict, compare=False)
    """Per vendor key, for each vendor asked."""
    replicas: Replicas = ()
    """What the kubelet would count."""
    has_claims: bool = False
    """Whether it has ResourceClaims of its own."""
    names_claim: bool = field(default=False, compare=False)
    """
    Whether its status names a ResourceClaim for its devices, which only a Node that gives claims prepares.

    kube-scheduler writes it between filter and bind, and nobody can remove it.
    """

    @property
    def asks_for_devices(self) -> bool:
        """Whether any container asks for any device."""
        return bool(self.constraints)

    @property
    def kind(self) -> Hashable:
        """What decides where it fits: with the same quotas, requests of one kind fit on the same Nodes."""
        return (
            tuple((container.kind, container.requests) for container in self.containers),
            self.replicas,
            tuple(self.constraints.items()),
            self.node_policy,
            self.device_policy,
            self.weights,
            self.has_claims,
            self.names_claim,
        )

    @property
    def shares_claim_requests(self) -> bool:
        """
        Whether a claim for its NVIDIA devices would have one request for several of its containers.

        kube-scheduler gives an ordinary init container the requests of a later one, so a Node could not tell them
        apart. Source: https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go
        """
        asking = [container.kind for container in self.containers if container.asks(nvidia.KEY)]
        return len(asking) > 1 and ContainerKind.INIT in asking

    @property
    def kinds(self) -> tuple[ContainerKind, ...]:
        """The kind of each container, in Pod order."""
        return tuple(container.kind for container in self.containers)


def read_request(pod: Mapping[str, Any], vendors: tuple[VendorRules, ...], defaults: Policies) -> PodRequest:
    """
    Return what *pod*, a v1 Pod object, asks of *vendors*.

    Raises:
        DecodeError: the Pod's device-scoring weights cannot be read. HAMi refuses such a Pod until they are fixed.
    """
    found = read_pod(pod, vendors)
    annotations = found.annotations
    asked = {request.vendor for container in found.containers for request in container.requests}
    weights = ScoringWeights()
    if asked and keys.SCORING_WEIGHTS in annotations:
        weights = decode_scoring_weights(annotations[keys.SCORING_WEIGHTS])
    asked_vendors = {rules.key: rules for rules in vendors if rules.key in asked}
    device_policy = read_device_policy(
        annotations.get(keys.GPU_SCHEDULER_POLICY, defaults.device).strip(BLANKS),
        is_numa_bound=any(rules.binds_to_numa(annotations) for rules in vendors if rules.numa_bind_key in annotations),
    )
    return PodRequest(
        uid=found.uid,
        namespace=found.namespace,
        name=found.name,
        containers=found.containers,
        constraints={key: rules.read_constraints(annotations, device_policy) for key, rules in asked_vendors.items()},
        node_policy=annotations.get(keys.NODE_SCHEDULER_POLICY, defaults.node).strip(BLANKS),
        device_policy=device_policy,
        weights=weights,
        vendors=asked_vendors,
        replicas=read_replicas(pod, resources_counted(vendors)),
        has_claims=bool((pod.get("spec") or {}).get("resourceClaims")),
        names_claim=bool((pod.get("status") or {}).get("extendedResourceClaimStatus")),
    )


def read_replicas(pod: Mapping[str, Any], resources: Set[str]) -> Replicas:
    """Return what the kubelet of *pod* counts of *resources*."""
    return tuple(effective_counts(pod, resources).items())
