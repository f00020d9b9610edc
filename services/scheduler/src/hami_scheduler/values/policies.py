"""
In which order Nodes and devices are tried: the policies of an operator (`Policies`) and of a Pod.

An invalid text has the same effect as in HAMi; `node_policy_problem` and `device_policy_problem` say what is wrong with
it. Neighbours: `request` reads a Pod's annotations, `rules.score` applies the policies.
"""

from dataclasses import dataclass

from hamicommon.wire.go.strings import BLANKS
from hamicommon.wire.policies import DEVICE_POLICIES, decode_device_policies

NODE_POLICIES = ("binpack", "spread")
_CHAIN_KEYS = ("binpack", "spread", "numa")


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
class DevicePolicy:
    """
    How the devices of a Node are ordered. The last is tried first.

    Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/scheduler/policy/gpu_policy.go
    """

    order: str = "spread"
    """`binpack`, `spread`, `mutex` or, for a list of policies, `chain`."""
    chain: tuple[str, ...] = ()
    """Sort keys of a `chain`; the first decides."""
    is_mutex: bool = False
    """Only idle devices are acceptable."""
    is_topology_aware: bool = False
    """The devices with the best links to each other are taken."""
    is_numa_bound: bool = False
    """Devices are ordered by NUMA node."""

    @property
    def words(self) -> tuple[str, ...]:
        """The policies in effect, as an annotation names them."""
        also = (("mutex", self.is_mutex), ("topology-aware", self.is_topology_aware))
        return tuple(dict.fromkeys((*(self.chain or (self.order,)), *(word for word, holds in also if holds))))


def read_device_policy(text: str, *, is_numa_bound: bool = False) -> DevicePolicy:
    """
    Return the policy *text* names; a single unknown word means `spread`.

    >>> read_device_policy("binpack").order
    'binpack'
    >>> read_device_policy("mutex, numa").chain
    ('numa',)
    """
    words = decode_device_policies(text)
    is_mutex, is_topology_aware = "mutex" in words, "topology-aware" in words
    if "," in text or text == "numa":
        chain = tuple(word for word in words if word in _CHAIN_KEYS) or ("spread",)
        return DevicePolicy("chain", chain, is_mutex, is_topology_aware, is_numa_bound)
    order = text if text in {"binpack", "mutex"} else "spread"
    return DevicePolicy(order, (), is_mutex, is_topology_aware, is_numa_bound)


def node_policy_problem(text: str) -> str | None:
    """
    Return what is wrong with *text* as a Node policy, None if it is valid.

    >>> node_policy_problem("Spread")
    "'Spread' is no Node policy; write binpack or spread"
    """
    return (
        None
        if text.strip(BLANKS) in NODE_POLICIES
        else f"{text!r} is no Node policy; write {' or '.join(NODE_POLICIES)}"
    )


def device_policy_problem(text: str) -> str | None:
    """
    Return what is wrong with *text* as a device policy, None if every word of it is valid.

    In a comma list, words may be blank or empty.

    >>> device_policy_problem("mutex, numa,"), device_policy_problem("binpack,nmua")
    (None, "'nmua' is no device policy; write binpack, spread, topology-aware, mutex, numa or a comma list of them")
    """
    words = [word for part in text.split(",") if (word := part.strip(BLANKS))] if "," in text else [text]
    odd = next((word for word in words if word not in DEVICE_POLICIES), None)
    if odd is None:
        return None
    return f"{odd!r} is no device policy; write {', '.join(DEVICE_POLICIES)} or a comma list of them"
