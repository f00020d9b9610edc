"""
The errors of the service.

Neighbours: `kube` translates the client's errors into these, the verbs and `bind_writer` handle them.
"""

from hamicommon.errors import HamiError


class ApiRefusedError(HamiError):
    """The API server refused a request; nothing was written."""


class ApiConflictError(ApiRefusedError):
    """The object has changed, is bound already, or is another Pod of the same name."""


class ApiUnknownError(HamiError):
    """It is unknown whether the request was carried out."""


class BindError(HamiError):
    """A Pod could not be bound; the message becomes the answer."""


class NotReadyError(HamiError):
    """Nothing can be decided now; the message says what is missing."""
