"""
MetaX, whole devices: counted, one device for all containers of a Pod, Nodes rated by the plugin's figures.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/metax/device.go
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hami_scheduler.rules.vendor_parts import counted_devices, same_device
from hami_scheduler.values.inventory import node_capacity
from hami_scheduler.values.vendor import FitRules, NodeView, VendorRules
from hamicommon.model import Device
from hamicommon.vendors import metax
from hamicommon.vendors.description import Vendor
from hamicommon.wire.errors import DecodeError

_MEMORY_MIB = 65536
"""The same for every model: the Node does not report it, and whole devices do not need it."""
_BEST = 2000
"""A figure is subtracted from this."""
_FIGURES = {"binpack": metax.LOSSES_KEY, "spread": metax.SCORES_KEY}
"""By Node policy: the annotation with the figures for each number of devices."""


def rules(vendor: Vendor) -> VendorRules:
    """Return MetaX's whole devices as decisions see it."""
    return VendorRules(
        vendor,
        fit=FitRules(check_last=same_device),
        read_devices=partial(_read_devices, config=vendor.config),
        node_keys=(metax.LOSSES_KEY, metax.SCORES_KEY),
        rate=_rate,
        rate_at_best=lambda prospect: _rate_count(sum(prospect.counts), prospect.vendor_annotations, prospect.policy),
    )


def _read_devices(node: Mapping[str, Any], config: metax.MetaxConfig) -> Sequence[Device]:
    device = Device("", count=1, memory_mib=_MEMORY_MIB, core_percent=100, type=metax.GPU_KEY)
    return counted_devices(node, node_capacity(node, config.resource_count_name), "metax", device)


def _rate(view: NodeView) -> float:
    return _rate_count(sum(map(len, view.shares)), view.vendor_annotations, view.policy)


def _rate_count(count: int, vendor_annotations: Mapping[str, str], policy: str) -> float:
    """Return the rating by the links lost (binpack) or won (spread); 0 under any other policy."""
    text = vendor_annotations.get(_FIGURES.get(policy, ""))
    if text is None:
        return 0
    try:
        figures = metax.decode_figures(text)
    except DecodeError:
        return _BEST
    return _BEST - figures.get(count, 0)
