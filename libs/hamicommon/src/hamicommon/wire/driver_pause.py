"""
Whether the processes on a Node must let go of the NVIDIA driver.

The kernel module cannot be unloaded, a GPU not be reset, and MIG mode not be changed while a process holds the driver.
NVIDIA's driver manager and MIG manager tell the GPU Operator's clients by labels whose value they change to
`paused-for-driver-upgrade` and `paused-for-mig-change`; afterwards they restore it. `hami.io/driver-pause` is the same
for anyone else: an annotation of the Node with any text, which is shown as the reason.
Source: https://github.com/NVIDIA/k8s-driver-manager/blob/main/cmd/driver-manager/main.go (maybeSetPaused)
"""

from collections.abc import Mapping
from typing import Any, Final

from hamicommon.wire.keys import DRIVER_PAUSE, MIG_CHANGE

OPERATOR_LABELS: Final = ("nvidia.com/gpu.deploy.client", "nvidia.com/gpu.deploy.device-plugin")
"""The first is the GPU Operator's label for NVML clients of others since 26.7; the second is there in every release."""
PAUSED: Final = "paused-for-"


def pause_reason(node: Mapping[str, Any]) -> str | None:
    """
    Return why the driver of *node*, an object of the API, must be let go; None if it may be used.

    >>> label = {"nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade"}
    >>> pause_reason({"metadata": {"labels": label}})
    'label nvidia.com/gpu.deploy.device-plugin=paused-for-driver-upgrade'
    >>> pause_reason({"metadata": {"annotations": {"hami.io/driver-pause": "reset of GPU 3"}}})
    'annotation hami.io/driver-pause=reset of GPU 3'
    >>> pause_reason({"metadata": {"labels": {"nvidia.com/gpu.deploy.device-plugin": "true"}}}) is None
    True
    """
    metadata = node.get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if annotations.get(DRIVER_PAUSE):
        return f"annotation {DRIVER_PAUSE}={annotations[DRIVER_PAUSE]}"
    paused = (key for key in OPERATOR_LABELS if PAUSED in labels.get(key, ""))
    return next((f"label {key}={labels[key]}" for key in paused), None)


def client_pause_reason(node: Mapping[str, Any]) -> str | None:
    """
    Return the same for a process other than the device plugin, which switches MIG on itself.

    >>> client_pause_reason({"metadata": {"annotations": {"hami.io/mig-change": "switching MIG on for GPU 0"}}})
    'annotation hami.io/mig-change=switching MIG on for GPU 0'
    >>> client_pause_reason({"metadata": {"annotations": {"hami.io/driver-pause": "reset"}}})
    'annotation hami.io/driver-pause=reset'
    """
    change = ((node.get("metadata") or {}).get("annotations") or {}).get(MIG_CHANGE)
    return f"annotation {MIG_CHANGE}={change}" if change else pause_reason(node)
