"""
What can go wrong between a decision and the API server, as the service sees it.

Neighbours: `kube` translates the client's errors into these, `extender` and `bind_writer` decide by them.
"""

from hamicommon.errors import HamiError


class ApiRefusedError(HamiError):
    """The API server refused a request for good; nothing was written."""


class ApiConflictError(ApiRefusedError):
    """The object is not as the request presumed: changed since, bound already, or another Pod of the same name."""


class ApiUnknownError(HamiError):
    """No answer, or one that does not tell whether the request was carried out."""


class BindError(HamiError):
    """A Pod could not be bound; the message says why and goes into the answer."""


class NotReadyError(HamiError):
    """Nothing can be decided now; the message says what is waited for."""
