"""
Which devices a Pod's annotations allow: comma lists of UUIDs and of models, and a truth value.

`nvidia.com/use-gpuuuid`, `nvidia.com/nouse-gputype` and every other vendor's. The same in all versions, except that
before 2.10 a UUID's `nouse` list was ignored where a `use` list was present.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/devices.go
"""

from typing import TypeGuard

from hamicommon.wire.go.strings import BLANKS, pieces


def uuid_allowed(use: str | None, nouse: str | None, uuid: str) -> bool:
    """
    Say whether the lists *use* and *nouse* (None: no such annotation) allow the device *uuid*.

    Members are trimmed and compared exactly; a blank list says nothing.

    >>> uuid_allowed("GPU-a, GPU-b", None, "GPU-b"), uuid_allowed(None, "GPU-b", "GPU-b")
    (True, False)
    """
    if _says_something(use) and not _names(use, uuid):
        return False
    return not (_says_something(nouse) and _names(nouse, uuid))


def on_both(one: str | None, other: str | None) -> str | None:
    """
    Return the list of UUIDs that are on both lists; one that says nothing leaves it to the other.

    >>> on_both("GPU-a, GPU-b", "GPU-b,GPU-c"), on_both(None, "GPU-a"), on_both("GPU-a", "GPU-b")
    ('GPU-b', 'GPU-a', ',')
    """
    if not _says_something(one):
        return other
    if not _says_something(other):
        return one
    common = [uuid for member in pieces(one, ",") if _names(other, uuid := member.strip(BLANKS))]
    return ",".join(common) or ","


def on_either(one: str | None, other: str | None) -> str | None:
    """
    Return the list of UUIDs that are on any of two lists.

    >>> on_either("GPU-a", "GPU-b"), on_either(None, "GPU-a"), on_either(None, None)
    ('GPU-a,GPU-b', 'GPU-a', None)
    """
    return f"{one},{other}" if one is not None and other is not None else one if other is None else other


def type_allowed(use: str | None, nouse: str | None, model: str) -> bool:
    """
    Say whether the lists *use* and *nouse* (None: no such annotation) allow the device model *model*.

    A member is met by any model that contains it, upper and lower case alike; blank members say nothing.

    >>> type_allowed("a100,h100", None, "NVIDIA A100-SXM4-40GB"), type_allowed(None, "a100", "NVIDIA A100")
    (True, False)
    """
    if _says_something(use) and not _part_of(use, model):
        return False
    return not (_says_something(nouse) and _part_of(nouse, model))


def _says_something(members: str | None) -> TypeGuard[str]:
    return members is not None and members.strip(BLANKS) != ""


def _names(members: str, uuid: str) -> bool:
    return any(member.strip(BLANKS) == uuid for member in pieces(members, ","))


def _part_of(members: str, model: str) -> bool:
    shouted = model.upper()
    trimmed = (member.strip(BLANKS) for member in pieces(members, ","))
    return any(member and member.upper() in shouted for member in trimmed)
