"""
Which devices a Pod's annotations accept (`Rules`), and in which order they are tried (`DevicePolicy`).

An invalid text has the same effect as in HAMi; `node_policy_problem` and `device_policy_problem` say what is wrong with
it. Neighbours: `vendor` knows the annotations, `request` reads them, `fit` and `score` apply them.
"""

from dataclasses import dataclass

from hamicommon.model import Device
from hamicommon.wire.device_lists import type_allowed, uuid_allowed
from hamicommon.wire.go.strings import BLANKS
from hamicommon.wire.policies import DEVICE_POLICIES, decode_device_policies

NODE_POLICIES = ("binpack", "spread")
_CHAIN_KEYS = ("binpack", "spread", "numa")

Notes = tuple[tuple[str, str], ...]
"""Annotations of a Pod for one vendor alone: key and text, in the vendor's order."""


def note(notes: Notes, key: str) -> str:
    """
    Return the text of *key* in *notes*, empty if it is missing.

    >>> note((("a", "1"), ("b", "2")), "b"), note((), "b")
    ('2', '')
    """
    return next((text for name, text in notes if name == key), "")


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
    return None if text in NODE_POLICIES else f"{text!r} is no Node policy; write {' or '.join(NODE_POLICIES)}"


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


@dataclass(frozen=True, slots=True)
class Rules:
    """Which devices of one vendor one Pod accepts."""

    use_uuids: str | None = None
    nouse_uuids: str | None = None
    use_types: str | None = None
    nouse_types: str | None = None
    type_word: str = ""
    """What the type of each of the vendor's devices contains, in lower case."""
    modes: str | None = None
    """Text that must contain the device's mode; None accepts every mode."""
    is_numa_bound: bool = False
    """All devices of one container come from one NUMA node."""
    is_mutex: bool = False
    is_topology_aware: bool = False
    """The devices of one container have the best links to each other."""
    notes: Notes = ()
    """Other annotations for this vendor."""
    core_capacity: int = 0
    """Compute that every device offers this Pod; 0 if what the device registered counts."""

    def accepts_type(self, device: Device) -> bool:
        """Return whether the model and the mode of *device* are acceptable."""
        if self.modes is not None and device.mode not in self.modes:
            return False
        if self.use_types is None and self.nouse_types is None:
            return True
        return type_allowed(self.use_types, self.nouse_types, device.type)

    def accepts_uuid(self, uuid: str) -> bool:
        """Return whether the Pod's UUID lists allow device *uuid*."""
        if self.use_uuids is None and self.nouse_uuids is None:
            return True
        return uuid_allowed(self.use_uuids, self.nouse_uuids, uuid)

    def note(self, key: str) -> str:
        """Return the text of annotation *key*, empty if it is missing."""
        return note(self.notes, key)
