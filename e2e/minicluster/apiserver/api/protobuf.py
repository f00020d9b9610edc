"""
Decode the protobuf bodies of kubectl's typed commands (`create namespace`, `create configmap`, `auth can-i`).

Owns the envelope and the field numbers of these kinds. Answers are never protobuf, because every client that sends it
also accepts JSON.
Source: k8s.io/apimachinery/pkg/runtime/serializer/protobuf, the generated.proto files of k8s.io/api.
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hamicommon.model import Object

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"


@dataclass(frozen=True, slots=True)
class Field:
    """The JSON form of a field: `text`, `bytes`, `int`, `bool`, `quantity`, or the fields of a message."""

    name: str
    form: "str | Message" = "text"
    is_list: bool = False
    is_map: bool = False


Message = dict[int, Field]

METADATA: Message = {
    1: Field("name"),
    2: Field("generateName"),
    3: Field("namespace"),
    5: Field("uid"),
    6: Field("resourceVersion"),
    11: Field("labels", is_map=True),
    12: Field("annotations", is_map=True),
    14: Field("finalizers", is_list=True),
}
_METADATA = Field("metadata", METADATA)
KINDS: dict[str, Message] = {
    "Namespace": {1: _METADATA},
    "ConfigMap": {1: _METADATA, 2: Field("data", is_map=True), 3: Field("binaryData", "bytes", is_map=True)},
    "Secret": {1: _METADATA, 2: Field("data", "bytes", is_map=True), 3: Field("type")},
    "ServiceAccount": {1: _METADATA},
    "ResourceQuota": {1: _METADATA, 2: Field("spec", {1: Field("hard", "quantity", is_map=True)})},
    "PriorityClass": {
        1: _METADATA,
        2: Field("value", "int"),
        3: Field("globalDefault", "bool"),
        4: Field("description"),
        5: Field("preemptionPolicy"),
    },
    "SelfSubjectAccessReview": {1: _METADATA},
}
"""The decoded fields of each kind. Other fields are ignored."""


def decode(content: bytes) -> Object:
    """
    Return the object in an enveloped protobuf body.

    Raises: ValueError if it is none, or its kind is not decoded here.
    """
    if not content.startswith(MAGIC):
        raise ValueError("the body does not start with the protobuf magic number")
    envelope = dict(_fields(content[len(MAGIC) :]))
    about = {number: bytes(value).decode() for number, value in _fields(envelope.get(1, b""))}
    version, kind = about.get(1, ""), about.get(2, "")
    if kind not in KINDS:
        raise ValueError(f"{kind} in version {version!r} is not decoded from protobuf")
    return {"apiVersion": version, "kind": kind, **_message(envelope.get(2, b""), KINDS[kind])}


def _message(content: bytes, fields: Message) -> Object:
    found: Object = {}
    for number, value in _fields(content):
        field = fields.get(number)
        if field is None:
            continue
        if field.is_map:
            entry = dict(_fields(value))
            found.setdefault(field.name, {})[bytes(entry.get(1, b"")).decode()] = _value(entry.get(2, b""), field.form)
        elif field.is_list:
            found.setdefault(field.name, []).append(_value(value, field.form))
        else:
            shown = _value(value, field.form)
            # An absent field is sent as its zero value, which JSON omits.
            if shown not in ("", None):
                found[field.name] = shown
    return found


def _value(value: Any, form: str | Message) -> Any:
    if isinstance(form, dict):
        return _message(value, form)
    match form:
        case "bytes":
            return base64.b64encode(value).decode()
        case "int":
            return value - (1 << 64) if value >> 63 else value
        case "bool":
            return bool(value)
        case "quantity":
            return bytes(dict(_fields(value)).get(1, b"")).decode()
    return bytes(value).decode()


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """
    Yield field numbers and values: an int, or bytes for a field with a length.

    Raises: ValueError if the wire format is invalid.
    """
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        if key & 7 == 0:
            value, place = _varint(content, place)
            yield key >> 3, value
        elif key & 7 == 2:
            length, place = _varint(content, place)
            if place + length > len(content):
                raise ValueError(f"a field of {length} bytes at {place} passes the end of the message")
            yield key >> 3, content[place : place + length]
            place += length
        else:
            raise ValueError(f"wire type {key & 7} at byte {place} is not used by these kinds")


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(content) and shift < 64:
        byte = content[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
    raise ValueError(f"unfinished number at byte {place}")
