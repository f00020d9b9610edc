"""
An archive of recorded answers, which answers as the cluster did: every command works on it.

The file comes from somebody else. It is read into memory within limits, and nothing of it is written to disk.
Neighbours: `recorder` writes it.
"""

import io
import tarfile
import zlib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import orjson

from kubectl_hami.read.source import ANSWER_LIMIT_BYTES, Endpoint, ReadError

FORMAT: Final = 1
INDEX: Final = "index.json"
SNAPSHOT: Final = "snapshot.json"
MEMBERS_LIMIT: Final = 50_000
TOTAL_LIMIT_BYTES: Final = 1024 * 1024 * 1024


Answer = bytes | ReadError
"""What was answered, or why nothing was when the archive was taken."""


def get_question(path: str) -> str:
    """Return how an archive calls a question to the API server."""
    return f"GET {path}"


def ask_question(endpoint: Endpoint, path: str) -> str:
    """Return how an archive calls a question to a service."""
    return f"ASK {endpoint.namespace}/{endpoint.pod}:{endpoint.port} {path}"


class Archive:
    """The recorded answers of one cluster."""

    def __init__(self, index: Mapping[str, Any], answers: Mapping[str, Answer], snapshot: bytes) -> None:
        self.name = str(index["cluster"])
        """The name of the recorded context."""
        self.namespace = str(index["namespace"])
        """The namespace of the recorded context."""
        self.patience_seconds = None
        """An archive answers at once."""
        self._taken_at = datetime.fromisoformat(str(index["takenAt"]))
        self._answers = answers
        self.snapshot = snapshot
        """What `hami-scheduler simulate --snapshot` reads; empty if the scheduler did not answer."""

    def now(self) -> datetime:
        """Return when the archive was taken."""
        return self._taken_at

    def get(self, path: str) -> bytes:
        """Return what the API server answered."""
        return self._given(get_question(path), path.partition("?")[0])

    def ask(self, endpoint: Endpoint, path: str, body: bytes | None = None) -> bytes:
        """Return what a service answered; a question with a *body* was never recorded."""
        if body is not None:
            raise ReadError(str(endpoint), "an archive answers no question about new Pods")
        return self._given(ask_question(endpoint, path), f"{endpoint}, {path}")

    def _given(self, question: str, what: str) -> bytes:
        found = self._answers.get(question)
        if found is None:
            raise ReadError(what, "is not in the archive")
        if isinstance(found, ReadError):
            raise ReadError(found.what, f"{found.why} (when the archive was taken)", found.status)
        return found


def load(file: str) -> Archive:
    """
    Return the archive in *file*.

    Raises:
        ReadError: it cannot be read, is no archive, or is too large.
    """
    try:
        members = _members(Path(file).read_bytes(), file)
    except (OSError, tarfile.TarError, EOFError, ValueError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ReadError(file, f"is no archive of kubectl hami bundle: {reason}") from error
    try:
        index = orjson.loads(members[INDEX])
        if index["format"] != FORMAT:
            raise ReadError(file, f"has format {index['format']!r}, and this version reads {FORMAT}")
        answers = {str(one["question"]): _answer(one, members) for one in index["answers"]}
        return Archive(index, answers, members.get(SNAPSHOT, b""))
    except (KeyError, TypeError, ValueError) as error:
        raise ReadError(file, f"its {INDEX} is missing or malformed: {error!r}") from error


def _answer(one: Mapping[str, Any], members: Mapping[str, bytes]) -> Answer:
    failure = one.get("error")
    if failure:
        return ReadError(str(failure["what"]), str(failure["why"]), int(failure["status"]))
    return members[one["file"]]


def _members(data: bytes, file: str) -> dict[str, bytes]:
    """Return the content of each regular file in an archive."""
    found: dict[str, bytes] = {}
    total = 0
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for member in archive:
            if not member.isfile():
                continue
            total += member.size
            if member.size > ANSWER_LIMIT_BYTES or total > TOTAL_LIMIT_BYTES or len(found) >= MEMBERS_LIMIT:
                raise ReadError(file, f"is too large at {member.name[:80]!a}")
            content = archive.extractfile(member)
            if content is not None:
                found[member.name] = content.read()
    return found
