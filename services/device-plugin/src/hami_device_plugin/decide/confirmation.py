"""
Decide what to write on a Pod once its containers have their devices.

Schedulers and HAMi's tools wait for these annotations.
Neighbours: `calls` and `node_loop` write them.
"""

from typing import Any

from hami_device_plugin.decide.pods import Pod
from hamicommon.vendor import Vendor
from hamicommon.wire import keys
from hamicommon.wire.pod_devices import encode_pod_devices

LABEL_BYTES_MAX = 63


def confirmation(pod: Pod, node: str, vendor: Vendor) -> dict[str, Any] | None:
    """
    Return the merge patch that marks *pod* as allocated; None if it is marked already, or has no shares.

    The patch names the UID, so it fails on another Pod of the same name.
    """
    if not {vendor.allocated_key, vendor.to_allocate_key} & pod.annotations.keys():
        return None
    annotations = {
        keys.BIND_PHASE: keys.BIND_PHASE_SUCCESS,
        vendor.to_allocate_key: encode_pod_devices(((),) * len(pod.containers)),
    }
    labels = {keys.POD_NODE: node} if len(node.encode()) <= LABEL_BYTES_MAX else {}
    is_consumed = not pod.annotations.get(vendor.to_allocate_key, "").strip(";")
    has_labels = labels.items() <= pod.labels.items()
    if pod.annotations.get(keys.BIND_PHASE) == keys.BIND_PHASE_SUCCESS and is_consumed and has_labels:
        return None
    return {"metadata": {"uid": pod.uid, "annotations": annotations, "labels": labels}}
