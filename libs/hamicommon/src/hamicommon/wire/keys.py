"""
Every annotation and label key of the contract that is not a vendor's own, each listed once.

A vendor's keys are in its description, `hamicommon.vendors`.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/util/types.go
"""

POD_NODE = "hami.io/vgpu-node"
"""Pod annotation and label: the Node its devices were granted on."""
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
"""Pod annotation: JSON, see `wire.mig_allocations`."""

ROOM_TIME = "hami.io/room-time"
"""Pod annotation, ours: Unix seconds at which there was room for a Pod nobody asked about; its change wakes it."""

NODE_SCHEDULER_POLICY = "hami.io/node-scheduler-policy"
GPU_SCHEDULER_POLICY = "hami.io/gpu-scheduler-policy"
SCORING_WEIGHTS = "hami.io/device-scoring-weights"

NODE_LOCK = "hami.io/mutex.lock"
"""Node annotation: see `wire.node_lock`."""
NODE_CORDON = "hami.io/device-cordon"
"""Node annotation: comma list of device UUIDs closed to new Pods."""
OLD_NODE_ALLOCATION = "hami.io/node-allocation"
"""Node annotation, ours: the mark that is now in the inventory. It is removed, and no longer read."""

WEBHOOK_LABEL = "hami.io/webhook"
"""Namespace or Pod label; the value `ignore` opts out of admission."""
SCHEDULER_ROLE_LABEL = "hami.io/scheduler-role"
