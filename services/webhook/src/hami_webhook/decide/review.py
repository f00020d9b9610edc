"""
Read AdmissionReviews of versions v1 and v1beta1, and write the answer in the same version.

A body that is not an AdmissionReview cannot be answered with one, so it is an error of the HTTP request.
Source: https://github.com/kubernetes/api/blob/v0.34.1/admission/v1/types.go
"""

import base64
import json
from dataclasses import dataclass
from typing import Any

import orjson

from hami_webhook.decide.admission import Admission
from hamicommon.errors import HamiError

API_VERSIONS = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")
VALUES_MAX = 200_000
"""Most objects, lists and keys of a body: several times those of the largest Pod, and still cheap to read."""
_UID_LIMIT = 256


class ReviewError(HamiError):
    """The body is not an AdmissionReview; the message names the field."""


@dataclass(frozen=True, slots=True)
class Review:
    """One request of the API server."""

    api_version: str
    uid: str
    namespace: str
    name: str
    is_pod_creation: bool
    object: Any
    """The Pod as sent; any JSON type."""


def read_review(body: bytes) -> Review:
    """
    Return the request in *body*.

    Raises:
        ReviewError: *body* is not JSON, has a key twice, has more values than any Pod, or is not an AdmissionReview
            with a request.
    """
    review = _read_json(body)
    if not isinstance(review, dict):
        raise ReviewError(f"body: must be an AdmissionReview object, not {type(review).__name__}")
    version = review.get("apiVersion")
    if version not in API_VERSIONS:
        raise ReviewError(f"apiVersion: must be {' or '.join(API_VERSIONS)}, not {str(version)[:60]!r}")
    if review.get("kind") != "AdmissionReview":
        raise ReviewError(f"kind: must be AdmissionReview, not {str(review.get('kind'))[:60]!r}")
    request = review.get("request")
    if not isinstance(request, dict):
        raise ReviewError("request: must be an object")
    uid = request.get("uid")
    if not isinstance(uid, str) or not 0 < len(uid) <= _UID_LIMIT:
        raise ReviewError(f"request.uid: must be a string of 1 to {_UID_LIMIT} characters")
    return Review(
        api_version=version,
        uid=uid,
        namespace=_text(request, "namespace"),
        name=_text(request, "name"),
        is_pod_creation=_is_pod_creation(request),
        object=request.get("object"),
    )


def answer(review: Review, admission: Admission) -> bytes:
    """Return the AdmissionReview that answers *review* with *admission*."""
    response: dict[str, Any] = {"uid": review.uid, "allowed": admission.allowed}
    if admission.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(admission.patch)).decode()
    if admission.code:
        status = {"code": admission.code, "reason": admission.reason, "message": admission.message}
        response["status"] = {key: value for key, value in status.items() if value}
    if admission.warnings:
        response["warnings"] = admission.warnings
    return orjson.dumps({"apiVersion": review.api_version, "kind": "AdmissionReview", "response": response})


def _read_json(body: bytes) -> Any:
    # Signs inside strings count too. A Pod has few of them, and an exact count would mean reading the body.
    values = sum(body.count(sign) for sign in (b"[", b"{", b":"))
    if values > VALUES_MAX:
        raise ReviewError(f"body: has {values} objects, lists and keys, more than {VALUES_MAX}")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ReviewError(f"body: is not JSON: {error}") from error
    _reject_repeated_keys(body)
    return value


def _is_pod_creation(request: dict[str, Any]) -> bool:
    """Return whether *request* creates a Pod; absent fields count as a match."""
    resource = request.get("resource")
    if not isinstance(resource, dict | None):
        raise ReviewError("request.resource: must be an object")
    kind = (resource or {}).get("resource", "pods"), (resource or {}).get("group", "")
    operation, subresource = _text(request, "operation") or "CREATE", _text(request, "subResource")
    return kind == ("pods", "") and operation == "CREATE" and not subresource


def _text(request: dict[str, Any], name: str) -> str:
    value = request.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ReviewError(f"request.{name}: must be a string")
    return value


def _reject_repeated_keys(body: bytes) -> None:
    """Reject a body with a repeated key, because two readers could see two different Pods."""

    def once(pairs: list[tuple[str, Any]]) -> None:
        if len(pairs) != len({name for name, _ in pairs}):
            names = [name for name, _ in pairs]
            repeated = next(name for name in names if names.count(name) > 1)
            raise ReviewError(f"body: key {repeated[:60]!r} is given twice in one object")

    try:
        json.loads(body, object_pairs_hook=once, parse_int=len, parse_float=len)
    except RecursionError as error:
        raise ReviewError("body: is nested too deeply") from error
