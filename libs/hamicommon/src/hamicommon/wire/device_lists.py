"""
The devices that a Pod's annotations allow: comma lists of UUIDs and of models.

Keys: `nvidia.com/use-gpuuuid`, `nvidia.com/nouse-gputype` and those of other vendors. All versions read them alike,
except that before 2.10 a `nouse` list of UUIDs was ignored beside a `use` list.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/devices.go
"""

from typing import TypeGuard

from hamicommon.wire.go.strings import BLANKS, pieces


def uuid_allowed(use: str | None, nouse: str | None, uuid: str) -> bool:
    """
    Return whether the lists *use* and *nouse* (None: no such annotation) allow the device *uuid*.

    Members are trimmed and compared exactly. A blank list has no effect.

    >>> uuid_allowed("GPU-a, GPU-b", None, "GPU-b"), uuid_allowed(None, "GPU-b", "GPU-b")
    (True, False)
    """
    if _has_effect(use) and not _names(use, uuid):
        return False
    return not (_has_effect(nouse) and _names(nouse, uuid))


def on_both(one: str | None, other: str | None) -> str | None:
    """
    Return the list of UUIDs that are on both lists. Without effect of one, it is the other.

    >>> on_both("GPU-a, GPU-b", "GPU-b,GPU-c"), on_both(None, "GPU-a"), on_both("GPU-a", "GPU-b")
    ('GPU-b', 'GPU-a', ',')
    """
    if not _has_effect(one):
        return other
    if not _has_effect(other):
        return one
    common = [uuid for member in pieces(one, ",") if _names(other, uuid := member.strip(BLANKS))]
    return ",".join(common) or ","


def on_either(one: str | None, other: str | None) -> str | None:
    """
    Return the list of UUIDs that are on either list.

    >>> on_either("GPU-a", "GPU-b"), on_either(None, "GPU-a"), on_either(None, None)
    ('GPU-a,GPU-b', 'GPU-a', None)
    """
    return f"{one},{other}" if one is not None and other is not None else one if other is None else other


def type_allowed(use: str | None, nouse: str | None, model: str) -> bool:
    """
    Return whether the lists *use* and *nouse* (None: no such annotation) allow the device model *model*.

    A member matches every model that contains it, in any case. Blank members have no effect.

    >>> type_allowed("a100,h100", None, "NVIDIA A100-SXM4-40GB"), type_allowed(None, "a100", "NVIDIA A100")
    (True, False)
    """
    if _has_effect(use) and not _part_of(use, model):
        return False
    return not (_has_effect(nouse) and _part_of(nouse, model))


def _has_effect(members: str | None) -> TypeGuard[str]:
    return members is not None and members.strip(BLANKS) != ""


def _names(members: str, uuid: str) -> bool:
    return any(member.strip(BLANKS) == uuid for member in pieces(members, ","))


def _part_of(members: str, model: str) -> bool:
    shouted = model.upper()
    trimmed = (member.strip(BLANKS) for member in pieces(members, ","))
    return any(member and member.upper() in shouted for member in trimmed)
