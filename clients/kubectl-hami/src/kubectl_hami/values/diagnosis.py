"""
What a diagnosis reads beside the picture of the cluster, and what it finds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Final

from hamicommon.model import Object
from kubectl_hami.values.cluster import ClusterSnapshot

WEBHOOK: Final = "hami-webhook"
SCHEDULER: Final = "hami-scheduler"
DEVICE_PLUGIN: Final = "hami-device-plugin"
MONITOR: Final = "hami-monitor"
COMPONENTS: Final = (WEBHOOK, SCHEDULER, DEVICE_PLUGIN, MONITOR)


@dataclass(frozen=True, slots=True)
class Service:
    """One Pod of one of our services."""

    component: str
    """One of COMPONENTS."""
    pod: Object
    metrics: bytes | None = None
    """None: it did not answer."""
    why_silent: str = ""
    is_forbidden: bool = False
    """Whether it was not asked, for lack of a right."""

    @property
    def name(self) -> str:
        """`namespace/name` of the Pod."""
        metadata = self.pod.get("metadata") or {}
        return f"{metadata.get('namespace')}/{metadata.get('name')}"

    @property
    def node(self) -> str:
        """The Node of the Pod."""
        return str((self.pod.get("spec") or {}).get("nodeName") or "")


@dataclass(frozen=True, slots=True)
class Examined:
    """Everything that the checks read of one cluster."""

    cluster: ClusterSnapshot
    services: tuple[Service, ...] = ()
    workloads: tuple[Object, ...] = ()
    """The Deployments and DaemonSets of the services."""
    webhooks: tuple[Object, ...] = ()
    """The MutatingWebhookConfigurations of the cluster."""
    config_maps: tuple[Object, ...] = ()
    """Those in the namespaces of the services."""
    node_leases: tuple[Object, ...] = ()
    """The Leases of the kubelets, which each renews by its own clock."""
    leases_read_at: datetime | None = None
    """None: when `cluster` was taken."""
    version: Mapping[str, Any] = field(default_factory=dict)
    """The API server's."""


class Health(Enum):
    """The verdict of a check. The worst comes last."""

    GOOD = "good"
    UNKNOWN = "unknown"
    DOUBTFUL = "doubtful"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what was found, and how to mend it."""

    name: str
    health: str
    """A value of `Health`."""
    found: str
    """One sentence."""
    fix: str = ""
    """What to do; empty only if the check is good."""
