"""
What a Pod was granted: `hami.io/vgpu-devices-to-allocate`, `hami.io/vgpu-devices-allocated` and every other vendor's.

`uuid,type,mem,cores:` per device, `;` after each container, init containers first. Every version writes the same text
for the same grant; they differ in how they mark containers without devices:

| written by | container without devices |
|---|---|
| up to 2.5 | `,,0,0:;` in some positions, nothing in others |
| 2.6 to 2.9 | `;` |
| 2.10 | `;`, but lost where the device's model differs from the vendor's key (HAMi #2899) |

Each time a device plugin consumes a container it leaves one more `;` at the end. So a decoded value can have more or
fewer entries than the Pod has containers; `shares_by_container` settles that.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/devices.go
"""

from collections.abc import Sequence
from typing import Final

from hamicommon.model import ContainerShares, PodShares, Share
from hamicommon.quantity import INT32_MAX
from hamicommon.wire.budget import POINTER_BYTES, Budget
from hamicommon.wire.errors import DecodeError, EncodeError, quote
from hamicommon.wire.strconv import parse_int
from hamicommon.wire.text import pieces, spans
from hamicommon.wire.version import NEWEST, WireVersion

_FIELDS: Final = 4
_LEAST: Final = -INT32_MAX - 1
_SHARE_BYTES: Final = 64
_TUPLE_BYTES: Final = 56
_INT_BYTES: Final = 28
_REMEMBERED: Final = 64
"""Texts remembered, so that equal ones share a value; a Pod has a few."""


def decode_pod_devices(text: str) -> PodShares:
    """
    Return one entry per `;`-separated part, so a value that ends in `;` has one empty entry at its end.

    >>> decode_pod_devices(";GPU-a,NVIDIA,3000,30:;")
    ((), (Share(uuid='GPU-a', type='NVIDIA', memory_mib=3000, core_percent=30),), ())

    A device without UUID is an old placeholder, not a device. Text between `:` that has no `,` is ignored, as are
    fields after the fourth.

    Raises: DecodeError when a device has fewer than four fields or an amount is not a 32-bit integer.
    """
    return _Decoder(text).decode()


class _Decoder:
    """The walk over one text: what the value costs, and what was read before, because texts repeat themselves."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._budget = Budget(len(text))
        self._types: dict[str, str] = {}
        self._amounts: dict[str, int] = {}
        self._last_piece = ""
        self._last_share: Share | None = None

    def decode(self) -> PodShares:
        containers: list[ContainerShares] = []
        for index, (start, stop) in enumerate(spans(self._text, ";")):
            self._budget.spend(POINTER_BYTES)
            containers.append(self._container(index, start, stop) if start < stop else ())
        return tuple(containers)

    def _container(self, container: int, start: int, stop: int) -> ContainerShares:
        shares: list[Share] = []
        for index, piece in enumerate(pieces(self._text, ":", start, stop)):
            if "," not in piece:
                continue
            if piece != self._last_piece:
                self._last_share = self._share(piece, f"container {container}, device {index}")
                self._last_piece = piece
            if self._last_share is not None:
                self._budget.spend(POINTER_BYTES)
                shares.append(self._last_share)
        if shares:
            self._budget.spend(_TUPLE_BYTES)
        return tuple(shares)

    def _share(self, piece: str, place: str) -> Share | None:
        values = piece.split(",", _FIELDS)
        if len(values) < _FIELDS:
            raise DecodeError(place, f"{quote(piece)} has {len(values)} fields, not uuid,type,memory,cores")
        memory_mib = self._amount(values[2], f"{place}, field memory")
        core_percent = self._amount(values[3], f"{place}, field cores")
        if not values[0]:
            return None
        self._budget.spend(_SHARE_BYTES)
        self._budget.spend_string(values[0])
        return Share(values[0], self._type(values[1]), memory_mib, core_percent)

    def _type(self, text: str) -> str:
        known = self._types.get(text)
        if known is None:
            self._budget.spend_string(text)
            known = text
            if len(self._types) < _REMEMBERED:
                self._types[text] = text
        return known

    def _amount(self, text: str, place: str) -> int:
        known = self._amounts.get(text)
        if known is None:
            known = parse_int(text, place, 32)
            self._budget.spend(_INT_BYTES)
            if len(self._amounts) < _REMEMBERED:
                self._amounts[text] = known
        return known


def encode_pod_devices(shares: PodShares, version: WireVersion = NEWEST) -> str:
    """
    Return *shares*, one entry per container, as every version of HAMi writes them.

    >>> encode_pod_devices(((), (Share("GPU-a", "NVIDIA", 3000, 30),)))
    ';GPU-a,NVIDIA,3000,30:;'

    Raises: EncodeError when a name has a separator in it, a UUID is empty, or an amount is no 32-bit integer.
    """
    written = []
    for container, container_shares in enumerate(shares):
        for index, share in enumerate(container_shares):
            place = f"container {container}, device {index}"
            if not share.uuid:
                raise EncodeError(f"{place}, field uuid", "is empty, which means no device")
            for name, value in (("uuid", share.uuid), ("type", share.type)):
                if any(separator in value for separator in ",:;"):
                    raise EncodeError(f"{place}, field {name}", f"{quote(value)} has a ',', ':' or ';'")
            for name, amount in (("memory", share.memory_mib), ("cores", share.core_percent)):
                if not _LEAST <= amount <= INT32_MAX:
                    raise EncodeError(f"{place}, field {name}", f"{amount} is outside {_LEAST}..{INT32_MAX}")
            written.append(f"{share.uuid},{share.type},{share.memory_mib},{share.core_percent}:")
        written.append(";")
    return "".join(written)


def shares_by_container(shares: PodShares, container_count: int, requesting: Sequence[bool] | None = None) -> PodShares:
    """
    Return exactly *container_count* entries: the shares of each container of the Pod, init containers first.

    Surplus entries at the end are dropped. *requesting* says which containers ask for this vendor's devices; with it,
    a value that lost its empty entries (HAMi #2899) is told by having shares where nothing was asked for, and the
    n-th entry with shares then belongs to the n-th requesting container.

    >>> a = (Share("GPU-a", "NVIDIA", 1000, 0),)
    >>> shares_by_container((a, ()), 2, requesting=(False, True)) == ((), a)
    True
    >>> shares_by_container((a, (), (), ()), 2) == (a, ())
    True
    """
    given = (*shares, *((),) * (container_count - len(shares)))
    if requesting is not None:
        is_shifted = any(
            share and not (index < container_count and requesting[index]) for index, share in enumerate(given)
        )
        if is_shifted:
            return _by_order(given, requesting)
    return given[:container_count]


def _by_order(shares: PodShares, requesting: Sequence[bool]) -> PodShares:
    """Give the n-th entry that has shares to the n-th requesting container."""
    left = iter([share for share in shares if share])
    return tuple(next(left, ()) if asks else () for asks in requesting)
