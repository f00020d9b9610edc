"""
The errors of the API, as `Status` objects.

Owns codes, reasons and the forms of messages. Must never decide when an error occurs.
Source: k8s.io/apimachinery/pkg/api/errors, k8s.io/apiserver/pkg/registry/generic/registry/store.go.
"""

from typing import Any


class StatusError(Exception):
    """A request that fails with *code* and a `Status` body."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def body(self) -> dict[str, Any]:
        """Return the `Status` object a client gets."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details:
            status["details"] = self.details
        status["code"] = self.code
        return status


def success(details: dict[str, Any] | None = None, code: int = 200) -> dict[str, Any]:
    """Return the `Status` of a successful request without an object in the answer."""
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        status["details"] = details
    if code != 200:
        status["code"] = code
    return status


def bad_request(message: str) -> StatusError:
    """The request is malformed."""
    return StatusError(400, "BadRequest", message)


def plain(message: str) -> StatusError:
    """An error with a message only."""
    return StatusError(500, "", message)


def not_found(plural: str, name: str) -> StatusError:
    """The object does not exist."""
    return StatusError(404, "NotFound", f'{plural} "{name}" not found', {"name": name, "kind": plural})


def no_such_path() -> StatusError:
    """The resource or path does not exist."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(plural: str, name: str) -> StatusError:
    """The object exists already."""
    return StatusError(409, "AlreadyExists", f'{plural} "{name}" already exists', {"name": name, "kind": plural})


def conflict(plural: str, name: str, why: str) -> StatusError:
    """A precondition does not hold."""
    message = f'Operation cannot be fulfilled on {plural} "{name}": {why}'
    return StatusError(409, "Conflict", message, {"name": name, "kind": plural})


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def uid_mismatch(wanted: str, found: str) -> str:
    """Why a uid precondition failed."""
    return f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"


def version_mismatch(wanted: str, found: str) -> str:
    """Why a resourceVersion precondition failed."""
    return f"Precondition failed: ResourceVersion in precondition: {wanted}, ResourceVersion in object meta: {found}"


def forbidden(plural: str, name: str, why: str) -> StatusError:
    """Admission rejects the request."""
    message = f'{plural} "{name}" is forbidden: {why}' if name else f"{plural} is forbidden: {why}"
    return StatusError(403, "Forbidden", message, {"name": name, "kind": plural})


def invalid(kind: str, name: str, problems: list[tuple[str, str]]) -> StatusError:
    """
    Validation failed. Each problem is `(field path, "Required value: …")`.

    The message has the form of field.ErrorList.ToAggregate.
    """
    texts = [f"{field}: {problem}" for field, problem in problems]
    joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    causes = [{"reason": _cause_reason(problem), "message": problem, "field": field} for field, problem in problems]
    details = {"name": name, "kind": kind, "causes": causes}
    return StatusError(422, "Invalid", f'{kind} "{name}" is invalid: {joined}', details)


def _cause_reason(problem: str) -> str:
    return "FieldValue" + problem.split(":", 1)[0].removesuffix(" value").title().replace(" ", "")


def method_not_allowed() -> StatusError:
    """The path exists, and does not have this verb."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {})


def unsupported_media_type(found: str, accepted: tuple[str, ...]) -> StatusError:
    """The server does not read the content type of the body."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return StatusError(415, "UnsupportedMediaType", f"{message} (found {found!r})" if found else message, {})


def gone(message: str) -> StatusError:
    """The requested state has been compacted."""
    return StatusError(410, "Expired", message)


def too_old(wanted: int, oldest: int) -> StatusError:
    """The events that a watch requests are no longer kept."""
    return gone(f"too old resource version: {wanted} ({oldest})")


CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


def too_large_version(wanted: int, current: int) -> StatusError:
    """The resourceVersion does not exist yet."""
    details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return StatusError(504, "Timeout", message, {**details, "retryAfterSeconds": 1})


def internal(message: str) -> StatusError:
    """A dependency of the server failed."""
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", {"causes": [{"message": message}]})
