"""
The errors of the API server: one exception for each reaction of a caller.

Neighbours: `kube` raises them, `reflector` retries after them.
Source: https://github.com/kubernetes/apimachinery/blob/v0.34.1/pkg/apis/meta/v1/types.go (Status, StatusReason)
"""

from typing import Any

import orjson

from hamicommon.errors import HamiError


class KubeConfigError(HamiError):
    """The kubeconfig or the service account is missing or broken, so no API server can be reached."""


class KubeError(HamiError):
    """
    The API server refused a request, or answered something that is not its protocol.

    `status` is the HTTP status, 0 without an answer. `reason` is the Status object's reason (`NotFound`), `path` the
    path of the request, `retry_after_seconds` the wait that the server asked for (0: none).
    """

    def __init__(self, path: str, status: int, reason: str, message: str, retry_after_seconds: float = 0.0) -> None:
        super().__init__(f"{path}: {status} {reason}: {message}" if status else f"{path}: {reason}: {message}")
        self.path = path
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds


class NotFound(KubeError):  # noqa: N818 - named after the Status reason it stands for
    """404: the object, or its kind, does not exist."""


class Conflict(KubeError):  # noqa: N818
    """409: the object changed since it was read, or exists already."""


class Gone(KubeError):  # noqa: N818
    """410: the server no longer has the resourceVersion or continue token; list again."""


class Unreachable(KubeError):  # noqa: N818
    """No answer, because of the network, TLS or a timeout. A write may have happened."""


_BY_STATUS: dict[int, type[KubeError]] = {404: NotFound, 409: Conflict, 410: Gone}


def error_from_status(path: str, status: int, body: bytes, retry_after: str | None = None) -> KubeError:
    """Return the error for a rejected request with *status* and *body*, which may be any bytes."""
    reason, message = f"HTTP {status}", body[:200].decode("utf-8", "replace").strip()
    answer = _json_object(body)
    if answer is not None:
        reason = str(answer.get("reason") or reason)
        message = str(answer.get("message") or message)
    kind = _BY_STATUS.get(status, KubeError)
    return kind(path, status, reason, message or "no message", _seconds(retry_after))


def error_from_event(path: str, status_object: object) -> KubeError:
    """Return the error for the Status in a watch's ERROR event."""
    status = status_object if isinstance(status_object, dict) else {}
    code = status.get("code")
    kind = _BY_STATUS.get(code, KubeError) if isinstance(code, int) else KubeError
    return kind(
        path,
        code if isinstance(code, int) else 0,
        str(status.get("reason") or "WatchError"),
        str(status.get("message") or "the watch ended with an error event"),
    )


def _json_object(body: bytes) -> dict[str, Any] | None:
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return answer if isinstance(answer, dict) else None


def _seconds(retry_after: str | None) -> float:
    """Return the Retry-After header's seconds; 0 for its date form, which API servers do not send."""
    if retry_after is None or not retry_after.isascii() or not retry_after.isdigit():
        return 0.0
    return float(min(int(retry_after[:9]), 3600))
