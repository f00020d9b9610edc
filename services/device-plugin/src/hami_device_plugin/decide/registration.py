"""
Decide whether to register with the kubelet again.

Ages arrive as seconds. A kubelet can lose a plugin without either of them noticing: the end of an older plugin of the
same resource cuts the younger one's stream, or marks its devices as unhealthy.
Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go
(runClient takes any client that has the resource's name at that moment)
"""

STREAM_GRACE_SECONDS = 2.0
"""A kubelet opens ListAndWatch right after a registration."""
ALLOCATABLE_GRACE_SECONDS = 120.0
"""A kubelet writes a changed capacity into its Node's status within about 10 s."""


def reason_to_register(
    age_seconds: float | None, *, open_streams: int, healthy_devices: int, allocatable: str | None
) -> str | None:
    """
    Return why to register now; None if all is well, or if a registration was just made.

    *age_seconds* is the age of the last registration, None before the first. *allocatable* is the resource's amount in
    the Node's status, None if it is not there.

    >>> reason_to_register(None, open_streams=0, healthy_devices=2, allocatable=None)
    'this plugin has not registered yet'
    >>> reason_to_register(1.0, open_streams=0, healthy_devices=2, allocatable=None) is None
    True
    >>> reason_to_register(3.0, open_streams=0, healthy_devices=2, allocatable="20")
    'the kubelet does not listen'
    >>> reason_to_register(121.0, open_streams=1, healthy_devices=2, allocatable="0")
    'the Node has no allocatable devices although some are healthy'
    """
    if age_seconds is None:
        return "this plugin has not registered yet"
    if not open_streams:
        return "the kubelet does not listen" if age_seconds > STREAM_GRACE_SECONDS else None
    if age_seconds > ALLOCATABLE_GRACE_SECONDS and healthy_devices and allocatable == "0":
        return "the Node has no allocatable devices although some are healthy"
    return None
