"""
Every annotation and label key, except those of a vendor.

A vendor's keys are in its description in `hamicommon.vendors`.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/util/types.go
"""

POD_NODE = "hami.io/vgpu-node"
"""Pod annotation and label: the Node of the granted devices."""
POD_TIME = "hami.io/vgpu-time"
"""Pod annotation: Unix seconds of the decision."""
BIND_PHASE = "hami.io/bind-phase"
"""Pod annotation: one of the BIND_PHASE_ values."""
BIND_PHASE_ALLOCATING = "allocating"
BIND_PHASE_SUCCESS = "success"
BIND_PHASE_FAILED = "failed"
BIND_TIME = "hami.io/bind-time"
"""Pod annotation: Unix seconds of the bind."""
MIG_ALLOCATIONS = "hami.io/vgpu-mig-allocations"
"""Pod annotation: JSON, see `wire.mig`."""

ROOM_TIME = "hami.io/room-time"
"""Our Pod annotation: Unix seconds at which the waiting Pod had room. The change makes kube-scheduler retry it."""

SCHEDULER_TERM = "hami.io/scheduler-term"
"""
Our condition of a Pod: which scheduler decides about it. The write matters more than the text: it changes the Pod's
resourceVersion, so that no Binding sent before can take effect.
"""

NODE_SCHEDULER_POLICY = "hami.io/node-scheduler-policy"
GPU_SCHEDULER_POLICY = "hami.io/gpu-scheduler-policy"
SCORING_WEIGHTS = "hami.io/device-scoring-weights"
ENFORCEMENT = "hami.io/enforcement"
"""Our Pod annotation: who is to limit memory. The only value is ENFORCEMENT_DRIVER."""
ENFORCEMENT_DRIVER = "driver"
AUTHOR_KEYS = (NODE_SCHEDULER_POLICY, GPU_SCHEDULER_POLICY, SCORING_WEIGHTS, ENFORCEMENT)
"""Pod annotations that a Pod's author writes, for every vendor."""

DEVICE_AMOUNTS = "hami.io/device-amounts"
"""Our Pod annotation: what the webhook moved out of the limits of its containers; see `hamicommon.pod.moved`."""

EVICTION_PLAN = "hami.io/eviction-plan"
"""Pod label that `kubectl hami defragment` proposes: which plan wants the Pod evicted. No service reads it."""

CLASS_TIME = "hami.io/mapping-time"
"""
Our DeviceClass annotation: Unix seconds at which another DeviceClass of the same resource was seen to be gone. The
change makes kube-scheduler read ours again.
"""

NODE_LOCK = "hami.io/mutex.lock"
"""Node annotation: see `wire.node_lock`."""
NODE_CORDON = "hami.io/device-cordon"
"""Node annotation: comma list of UUIDs of devices that take no new Pods."""
NODE_DEVICE_LIST = "hami.io/node-nvidia-device-list"
"""Our Node annotation: how devices reach containers on the Node, and why. For people."""
NODE_ENFORCEMENT = "hami.io/node-enforcement"
"""Our Node annotation: who limits the memory of containers on the Node, and why. For people."""
NODE_KIND = "hami.io/node-kind"
"""Our Node annotation: `dra` if devices reach the kubelet by ResourceClaims. Without it by the DevicePlugin API."""
DEVICE_FAULTS = "hami.io/device-faults"
"""Our Node annotation: JSON with the faults of unhealthy devices, by UUID. The device plugin writes and reads it."""
DEVICE_RESTORE = "hami.io/device-restore"
"""Our Node annotation: comma list of UUIDs that an operator declares repaired, or `all`. The plugin removes it."""
DRIVER_PAUSE = "hami.io/driver-pause"
"""Our Node annotation: see `wire.driver_pause`."""
OLD_NODE_ALLOCATION = "hami.io/node-allocation"
"""Our old Node annotation. Its mark is now in the inventory; the plugin removes it and no service reads it."""

MIG_CHANGE = "hami.io/mig-change"
"""Our Node annotation: why NVML clients other than the device plugin must let go of the driver for a moment."""

WEBHOOK_LABEL = "hami.io/webhook"
"""Namespace or Pod label: `ignore` turns admission off."""
