"""
Whether a Node's device plugin is alive, told from the Node object alone.

Owns HAMi's rule for plugins that do not take their inventory back when they die. The scheduler writes no handshake:
every NVIDIA plugin renews its inventory without being asked (2.7 and older every 30 s, 2.8 and newer on change).
Neighbours: `cluster` hides the inventory of a Node whose plugin is dead.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/device.go (`CheckHealth`)
"""

from hamicommon.wire.handshake import HandshakeState


def plugin_is_alive(handshake: str | None, replica_count: int, *, had_replicas: bool) -> bool:
    """
    Return whether the inventory of a vendor on a Node can be believed.

    *replica_count* is what the kubelet offers now, *had_replicas* whether it ever offered any while we looked. A
    plugin that offers nothing is dead if it offered something before, or if its handshake is a scheduler's request,
    whatever time that request says.
    """
    if replica_count > 0:
        return True
    return not had_replicas and HandshakeState.REQUESTING.value not in (handshake or "")
