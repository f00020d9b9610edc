"""
Which devices a Pod's annotations allow: comma lists of UUIDs and of models, and a truth value.

`nvidia.com/use-gpuuuid`, `nvidia.com/nouse-gputype` and every other vendor's. The same in all versions, except that
before 2.10 a UUID's `nouse` list was ignored where a `use` list was present.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/devices.go
"""

from typing import Final, TypeGuard

from hamicommon.wire.strconv import parse_bool
from hamicommon.wire.text import pieces

__all__ = ["GO_BLANKS", "on_both", "on_either", "parse_bool", "type_allowed", "uuid_allowed"]

GO_BLANKS: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""What Go's `strings.TrimSpace` takes off; Python's `strip` also takes the separators U+001C to U+001F."""


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
    common = [uuid for member in pieces(one, ",") if _names(other, uuid := member.strip(GO_BLANKS))]
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
    return members is not None and members.strip(GO_BLANKS) != ""


def _names(members: str, uuid: str) -> bool:
    return any(member.strip(GO_BLANKS) == uuid for member in pieces(members, ","))


def _part_of(members: str, model: str) -> bool:
    shouted = model.upper()
    trimmed = (member.strip(GO_BLANKS) for member in pieces(members, ","))
    return any(member and member.upper() in shouted for member in trimmed)
