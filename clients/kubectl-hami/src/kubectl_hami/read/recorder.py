"""
Read a cluster and remember every answer, redacted, for an archive.

What commands see of a recorded cluster is what the archive will hold, so that both give the same answers.
Neighbours: `redaction` says what is kept, `archive` reads the file.
"""

import io
import re
import tarfile
import threading
from datetime import datetime
from typing import Any, Final

import orjson

from kubectl_hami.read.archive import FORMAT, INDEX, SNAPSHOT, Answer, ask_question, get_question
from kubectl_hami.read.redaction import UnknownAnswerError, redacted, scrubbed
from kubectl_hami.read.source import Endpoint, ReadError, Source

_NAME_CHARACTERS: Final = 80
_README: Final = b"""What kubectl hami bundle recorded of a cluster. Every command reads it with --from, such as:

    kubectl hami doctor --from FILE

index.json     each question with the file of its answer, or with the reason why there is none
answers/       the answers: objects, metrics, logs, explanations
snapshot.json  for hami-scheduler explain --snapshot and simulate --snapshot

Environments, commands, arguments, images, volumes and messages of containers, Secrets, and annotations of others are
left out. Look into it before you share it.
"""


class Recorder:
    """A source that remembers. It reads each question once."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.namespace = source.namespace
        self.patience_seconds = source.patience_seconds
        self._source = source
        self._taken_at = source.now()
        self._answers: dict[str, Answer] = {}
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """Return when the recording began."""
        return self._taken_at

    def get(self, path: str) -> bytes:
        """Read, redact and remember; what nobody knows how to redact is not remembered, and is an error."""
        question = get_question(path)
        try:
            found = redacted(path, self._source.get(path))
        except UnknownAnswerError as error:
            failure = ReadError(path.partition("?")[0], "is not kept, because nothing says what is secret in it")
            self._remember(question, failure)
            raise failure from error
        except ReadError as error:
            self._remember(question, error)
            raise
        self._remember(question, found)
        return found

    def ask(self, endpoint: Endpoint, path: str, body: bytes | None = None) -> bytes:
        """Ask and remember; a question with a *body* is not remembered."""
        if body is not None:
            return self._source.ask(endpoint, path, body)
        try:
            found = scrubbed(self._source.ask(endpoint, path).decode(errors="replace")).encode()
        except ReadError as error:
            self._remember(ask_question(endpoint, path), error)
            raise
        self._remember(ask_question(endpoint, path), found)
        return found

    def _remember(self, question: str, answer: Answer) -> None:
        with self._lock:
            self._answers[question] = answer

    def packed(self, snapshot: bytes) -> bytes:
        """Return the archive, with *snapshot* for the scheduler's own commands; empty for none."""
        entries: list[dict[str, Any]] = []
        files: dict[str, bytes] = {"README.txt": _README, **({SNAPSHOT: snapshot} if snapshot else {})}
        for number, (question, answer) in enumerate(sorted(self._answers.items())):
            if isinstance(answer, ReadError):
                error = {"what": answer.what, "why": answer.why, "status": answer.status}
                entries.append({"question": question, "error": error})
                continue
            name = f"answers/{number:04d}-{re.sub(r'[^a-zA-Z0-9.-]+', '-', question)[:_NAME_CHARACTERS].strip('-')}"
            files[name] = answer
            entries.append({"question": question, "file": name})
        index = {
            "format": FORMAT,
            "cluster": self.name,
            "namespace": self.namespace,
            "takenAt": self._taken_at.isoformat(),
            "answers": entries,
        }
        return _archive({INDEX: orjson.dumps(index, option=orjson.OPT_INDENT_2), **files}, self._taken_at)


def _archive(files: dict[str, bytes], taken_at: datetime) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(content), int(taken_at.timestamp()), 0o600
            archive.addfile(member, io.BytesIO(content))
    return target.getvalue()
