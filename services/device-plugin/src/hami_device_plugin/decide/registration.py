"""
Decide whether the kubelet has to be told again that this plugin is there.

Pure: ages arrive as seconds. A kubelet can lose a plugin without either noticing: the end of an older instance of the
same resource cuts the younger one's stream, or leaves its devices marked as unhealthy.
Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go
(runClient takes whatever client has the resource's name by then)
"""

from dataclasses import dataclass

STREAM_GRACE_SECONDS = 2.0
"""A kubelet opens ListAndWatch at once after a registration."""
ALLOCATABLE_GRACE_SECONDS = 120.0
"""A kubelet writes a changed capacity into its Node's status within some 10 s."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How this plugin stands with the kubelet."""

    registered_seconds_ago: float | None
    """None before the first registration."""
    open_streams: int
    healthy_devices: int
    allocatable: str | None
    """What the Node's status says of the resource; None where it says nothing."""


def reason_to_register(standing: Standing) -> str | None:
    """
    Return why to register now, None where all is well or a registration has just been made.

    >>> reason_to_register(Standing(None, 0, 2, None))
    'it was never told'
    >>> reason_to_register(Standing(1.0, 0, 2, None)) is None
    True
    >>> reason_to_register(Standing(3.0, 0, 2, "20"))
    'it does not listen'
    >>> reason_to_register(Standing(121.0, 1, 2, "0"))
    'its Node has no allocatable devices although some are healthy'
    """
    if standing.registered_seconds_ago is None:
        return "it was never told"
    if not standing.open_streams:
        return "it does not listen" if standing.registered_seconds_ago > STREAM_GRACE_SECONDS else None
    is_settled = standing.registered_seconds_ago > ALLOCATABLE_GRACE_SECONDS
    if is_settled and standing.healthy_devices and standing.allocatable == "0":
        return "its Node has no allocatable devices although some are healthy"
    return None
