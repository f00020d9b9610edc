"""
The allocation lock of a Node: the annotation `hami.io/mutex.lock`, or a vendor's key.

The text is `<RFC 3339 time>,<namespace>,<pod>` since 2.4. Before, and by the DCU plugin, it is the time alone.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/util/nodelock/nodelock.go
"""

from datetime import timedelta

from hamicommon.model import NodeLock
from hamicommon.wire.errors import WHOLE_TEXT, DecodeError, EncodeError, quote
from hamicommon.wire.go.times import format_rfc3339, parse_rfc3339
from hamicommon.wire.limits import check_size
from hamicommon.wire.version import NEWEST, WireVersion


def decode_node_lock(text: str) -> NodeLock:
    """
    Return since when the lock is held, and by which Pod.

    >>> decode_node_lock("2026-08-21T06:20:39Z,default,train-0").pod
    'train-0'
    >>> decode_node_lock("2026-08-21T06:20:39Z").pod is None
    True

    Raises: DecodeError when the text has neither one nor three parts, or the first is no time.
    """
    check_size(text)
    commas = text.count(",")
    if commas == 0:
        return NodeLock(parse_rfc3339(text, "lock time"))
    if commas != 2:
        raise DecodeError(WHOLE_TEXT, f"{quote(text)} has {commas + 1} parts, not time or time,namespace,pod")
    time, namespace, pod = text.split(",")
    return NodeLock(parse_rfc3339(time, "lock time"), namespace, pod)


def encode_node_lock(lock: NodeLock, version: WireVersion = NEWEST) -> str:
    """
    Return *lock* as every version writes it. Without an owner it is the time alone.

    >>> encode_node_lock(decode_node_lock("2026-08-21T14:20:39+08:00,default,train-0"))
    '2026-08-21T14:20:39+08:00,default,train-0'

    Raises: EncodeError when only one part of the owner is given, a name has a comma, or the time has no offset in whole
    minutes.
    """
    offset = lock.time.offset
    if offset is None or offset % timedelta(minutes=1):
        raise EncodeError("lock time", f"{lock.time} has no offset from UTC in whole minutes")
    time = format_rfc3339(lock.time)
    if lock.namespace is None and lock.pod is None:
        return time
    for name, value in (("namespace", lock.namespace), ("pod", lock.pod)):
        if value is None or "," in value:
            raise EncodeError(f"lock {name}", f"{value!r} cannot be written between commas")
    return f"{time},{lock.namespace},{lock.pod}"
