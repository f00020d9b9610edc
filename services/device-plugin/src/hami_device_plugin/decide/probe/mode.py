"""
Decide how allocations find their Pod on this Node: by identity or under the lock.

Identity needs a kubelet that passes CDI names on, and a container runtime that resolves them. An unknown version counts
as too old.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

AUTO, IDENTITY, LOCK = "auto", "identity", "lock"
RUNTIMES_WITH_CDI: Mapping[str, tuple[int, int]] = {"containerd": (2, 0), "cri-o": (1, 23), "minicluster": (0, 0)}
"""
First version that resolves CDI names by default. `minicluster` is the embedded cluster.

Source: https://github.com/cncf-tags/container-device-interface#how-to-configure-cdi
"""
KUBELET_WITH_CDI = (1, 29)
"""
First kubelet that passes a device plugin's CDI names to the runtime by default.

Source: https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/4009-add-cdi-devices-to-device-plugin-api
"""


@dataclass(frozen=True, slots=True)
class Mode:
    """How allocations find their Pod, and why."""

    name: str
    reason: str

    @property
    def is_identity(self) -> bool:
        """Whether allocations go by identity."""
        return self.name == IDENTITY


def choose(setting: str, node: Mapping[str, Any], problem: str | None) -> Mode:
    """
    Return the mode for *setting* on *node*; *problem* is what a probe of the kubelet found, None if it works.

    >>> info = {"containerRuntimeVersion": "containerd://1.7.29", "kubeletVersion": "v1.34.4"}
    >>> choose("auto", {"status": {"nodeInfo": info}}, None)
    Mode(name='lock', reason='containerd 1.7.29 is older than 2.0, the first with CDI by default')
    """
    if setting != AUTO:
        return Mode(setting, "configured")
    runtime, kubelet = versions(node) or ("", "")
    found = cdi_problem(node) or problem
    return Mode(LOCK, found) if found else Mode(IDENTITY, f"{runtime} and kubelet {kubelet} have CDI")


def cdi_problem(node: Mapping[str, Any]) -> str | None:
    """
    Return why a container of *node* is not known to get the CDI devices that a device plugin names; None if it does.
    """
    runtime, kubelet = versions(node) or ("", "")
    return _runtime_problem(runtime) or _kubelet_problem(kubelet)


def versions(node: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the versions of container runtime and kubelet that *node* reports; empty until it reports both."""
    info = (node.get("status") or {}).get("nodeInfo") or {}
    found = (info.get("containerRuntimeVersion", ""), info.get("kubeletVersion", ""))
    return found if all(found) else ()


def _runtime_problem(text: str) -> str | None:
    name, _, version = text.partition("://")
    first = RUNTIMES_WITH_CDI.get(name)
    if first is None:
        return f"container runtime {text or '(unknown)'} is not known to have CDI"
    if _version(version) < first:
        return f"{name} {version} is older than {first[0]}.{first[1]}, the first with CDI by default"
    return None


def _kubelet_problem(text: str) -> str | None:
    if _version(text) < KUBELET_WITH_CDI:
        return f"kubelet {text or '(unknown)'} is older than 1.29, the first that passes CDI names on"
    return None


def _version(text: str) -> tuple[int, int]:
    found = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (-1, -1)
