"""
What a Pod's annotations demand of the devices it gets, and how they rank them.

Owns `Rules` (which devices are acceptable) and `DevicePolicy` (which are tried first). Pure readings of text; a text
that means nothing falls back as HAMi falls back, and what is wrong with it can be asked. Neighbours: `vendor` knows
which annotations mean something, `request` reads them once a decision, `fit` and `score` apply them, `hints` and
`config` ask what is wrong.
"""

from dataclasses import dataclass

from hamicommon.model import Device
from hamicommon.wire.device_lists import type_allowed, uuid_allowed
from hamicommon.wire.go.strings import BLANKS
from hamicommon.wire.policies import DEVICE_POLICIES, decode_device_policies

NODE_POLICIES = ("binpack", "spread")
_CHAIN_KEYS = ("binpack", "spread", "numa")

Notes = tuple[tuple[str, str], ...]
"""Annotations of a Pod that mean something to one vendor alone: key and text, in the vendor's order."""


def note(notes: Notes, key: str) -> str:
    """
    Return what *notes* say under *key*, empty where they say nothing.

    >>> note((("a", "1"), ("b", "2")), "b"), note((), "b")
    ('2', '')
    """
    return next((text for name, text in notes if name == key), "")


@dataclass(frozen=True, slots=True)
class DevicePolicy:
    """
    How the devices of a Node are ordered before they are tried, last first.

    Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/scheduler/policy/gpu_policy.go
    """

    order: str = "spread"
    """`binpack`, `spread`, `mutex` or, for a list of policies, `chain`."""
    chain: tuple[str, ...] = ()
    """Sort keys of a `chain`, first decides."""
    is_mutex: bool = False
    """Only devices nobody uses are acceptable."""
    is_topology_aware: bool = False
    """Among all acceptable devices, those best connected to each other are taken."""
    is_numa_bound: bool = False
    """Devices of one NUMA node stand together."""

    @property
    def words(self) -> tuple[str, ...]:
        """The policies that count, as an annotation names them."""
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
    Return what is wrong with *text* as a Node policy, None where it is one.

    >>> node_policy_problem("Spread")
    "'Spread' is no Node policy; write binpack or spread"
    """
    return None if text in NODE_POLICIES else f"{text!r} is no Node policy; write {' or '.join(NODE_POLICIES)}"


def device_policy_problem(text: str) -> str | None:
    """
    Return what is wrong with *text* as a device policy, None where each word of it is one.

    Blanks and nothing are allowed between commas only.

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
    """What one Pod demands of the devices of one vendor."""

    use_uuids: str | None = None
    nouse_uuids: str | None = None
    use_types: str | None = None
    nouse_types: str | None = None
    type_word: str = ""
    """What a device's type must contain, in lower case, to be the vendor's at all."""
    modes: str | None = None
    """Text that must contain the device's mode; None accepts every mode."""
    is_numa_bound: bool = False
    """All devices of one container come from one NUMA node."""
    is_mutex: bool = False
    is_topology_aware: bool = False
    """The devices of one container are those best connected to each other."""
    notes: Notes = ()
    """What else the Pod says to this vendor."""
    core_capacity: int = 0
    """What every device offers for this Pod, whatever it registered; 0 where that counts."""

    def accepts_type(self, device: Device) -> bool:
        """Return whether the model and the mode of *device* are acceptable."""
        if self.modes is not None and device.mode not in self.modes:
            return False
        if self.use_types is None and self.nouse_types is None:
            return True
        return type_allowed(self.use_types, self.nouse_types, device.type)

    def accepts_uuid(self, uuid: str) -> bool:
        """Return whether the Pod's UUID lists let it have device *uuid*."""
        if self.use_uuids is None and self.nouse_uuids is None:
            return True
        return uuid_allowed(self.use_uuids, self.nouse_uuids, uuid)

    def note(self, key: str) -> str:
        """Return what the Pod says under *key*, empty where it says nothing."""
        return note(self.notes, key)
