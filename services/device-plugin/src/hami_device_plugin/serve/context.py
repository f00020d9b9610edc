"""
What the parts of one session share: the settings it began with, and the outside world.
"""

from collections.abc import MutableMapping
from dataclasses import dataclass

from hami_device_plugin.adapters.checkpoint import Checkpoint
from hami_device_plugin.adapters.dra_kube import DraKube
from hami_device_plugin.adapters.kube import NodeKube
from hami_device_plugin.adapters.kubelet import PodResources
from hami_device_plugin.config.settings import Config
from hami_device_plugin.decide.health.condition import Condition
from hami_device_plugin.metrics import Metrics
from hamicommon.runtime.host.nvml import Nvml
from hamicommon.vendors.description import Vendor

Conditions = MutableMapping[str, Condition]


@dataclass(frozen=True, slots=True)
class Context:
    """What every part of a session may use."""

    config: Config
    """As the session began; a part that adopts changed settings keeps them itself."""
    vendor: Vendor
    view: NodeKube
    dra: DraKube
    nvml: Nvml
    resources: PodResources
    checkpoint: Checkpoint
    conditions: Conditions
    """What is known of each device, by UUID. It outlives the session."""
    metrics: Metrics
