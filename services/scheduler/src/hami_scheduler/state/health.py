"""
Tell from the Node object whether its device plugin is alive.

A plugin that dies leaves its inventory behind. The scheduler writes no handshake: every NVIDIA plugin renews its
inventory by itself (2.7 and older every 30 s, 2.8 and newer on change).
Neighbours: `cluster` hides the inventory of a Node whose plugin is dead.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/device.go (`CheckHealth`)
"""

from hamicommon.wire.handshake import HandshakeState


def plugin_is_alive(handshake: str | None, replica_count: int, *, had_replicas: bool) -> bool:
    """
    Return whether the device plugin of a vendor on a Node is alive.

    *replica_count* is what the kubelet offers now; *had_replicas* says whether it offered any since we started. A
    plugin that offers nothing is dead if it offered something before, or if its handshake is a scheduler's request.
    """
    if replica_count > 0:
        return True
    return not had_replicas and HandshakeState.REQUESTING.value not in (handshake or "")
