"""
Decide whether to register with the kubelet again.

Ages arrive as seconds. A kubelet can lose a plugin without either of them noticing: the end of an older plugin of the
same resource cuts the younger one's stream, or marks its devices as unhealthy.
Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go
(runClient takes any client that has the resource's name at that moment)
"""

from dataclasses import dataclass

STREAM_GRACE_SECONDS = 2.0
"""A kubelet opens ListAndWatch right after a registration."""
ALLOCATABLE_GRACE_SECONDS = 120.0
"""A kubelet writes a changed capacity into its Node's status within about 10 s."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The state of this plugin's registration."""

    age_seconds: float | None
    """None before the first registration."""
    open_streams: int
    healthy_devices: int
    allocatable: str | None
    """The resource's amount in the Node's status; None if it is not there."""


def reason_to_register(registration: Registration) -> str | None:
    """
    Return why to register now; None if all is well, or if a registration was just made.

    >>> reason_to_register(Registration(None, 0, 2, None))
    'this plugin has not registered yet'
    >>> reason_to_register(Registration(1.0, 0, 2, None)) is None
    True
    >>> reason_to_register(Registration(3.0, 0, 2, "20"))
    'the kubelet does not listen'
    >>> reason_to_register(Registration(121.0, 1, 2, "0"))
    'the Node has no allocatable devices although some are healthy'
    """
    if registration.age_seconds is None:
        return "this plugin has not registered yet"
    if not registration.open_streams:
        return "the kubelet does not listen" if registration.age_seconds > STREAM_GRACE_SECONDS else None
    is_settled = registration.age_seconds > ALLOCATABLE_GRACE_SECONDS
    if is_settled and registration.healthy_devices and registration.allocatable == "0":
        return "the Node has no allocatable devices although some are healthy"
    return None
