"""
Whether a Node's device plugin is alive, told from the Node object alone.

Owns HAMi's rule for plugins that do not take their inventory back when they die. The scheduler writes no handshake:
every NVIDIA plugin renews its inventory without being asked (2.7 and older every 30 s, 2.8 and newer on change).
Neighbours: `cluster` hides the inventory of a Node whose plugin is dead.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/device.go (`CheckHealth`)
"""

from datetime import datetime

from hamicommon.wire.handshake import check_health


def plugin_is_alive(handshake: str | None, replica_count: int, *, had_replicas: bool, now: datetime) -> bool:
    """
    Return whether the inventory of a vendor on a Node can be believed.

    *replica_count* is what the kubelet offers now, *had_replicas* whether it ever offered any while we looked. A
    question an older scheduler left open (`Requesting_...`) counts against a plugin that offers nothing. *now* has
    the zone of whoever wrote *handshake*.
    """
    if replica_count > 0:
        return True
    return not had_replicas and check_health(handshake, now=now, allocatable=replica_count).is_healthy
