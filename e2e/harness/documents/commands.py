"""
Run the commands of a document as they are written.

Owns how commands are marked: a fenced `sh` block right below the comment `<!-- run: NAME -->` or
`<!-- not run: WHY -->`. One block is named `variables`; only the values of its `export NAME=value` lines may differ
between clusters. Must never change a command. Neighbours: README and pages of `docs` have marked blocks; tests of the
real cluster run them.
"""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

VARIABLES = "variables"
LANGUAGE = "sh"
_MARK = re.compile(r"\s*<!-- run: (?P<name>[a-z0-9-]+) -->\s*")
_NOT_RUN = re.compile(r"\s*<!-- not run: \S.* -->\s*")
_EXPORT = re.compile(r"export (?P<name>[A-Z][A-Z0-9_]*)=(?P<value>\S*)")
_OURS = frozenset({"KUBECONFIG", "PATH"})
"""Variables of the caller that no page has to name."""
_USE = re.compile(r"\$\{?([A-Z][A-Z0-9_]*)")


class DocumentError(Exception):
    """The marks of a document are wrong, or a command failed. The message names file and line."""


@dataclass(frozen=True, slots=True)
class Block:
    """One marked block."""

    name: str
    text: str
    line: int
    """The line of its fence, from 1."""


class Document:
    """A Markdown file with marked commands."""

    def __init__(self, path: Path) -> None:
        """
        Read *path*.

        Raises:
            DocumentError: a mark has no block, two blocks have one name, or a block uses an unknown variable.
        """
        self.path = path
        self.blocks: dict[str, Block] = {}
        for block in _marked(path):
            if block.name in self.blocks:
                raise DocumentError(f"{path}:{block.line}: a second block is named {block.name!r}")
            self.blocks[block.name] = block
        self.variables = self._exported()
        """The exported variables and their values."""
        for block in self.blocks.values():
            strangers = sorted(set(_USE.findall(block.text)) - set(self.variables))
            if strangers:
                raise DocumentError(f"{path}:{block.line}: block {VARIABLES!r} does not export {', '.join(strangers)}")

    def run(
        self, name: str, environment: Mapping[str, str] | None = None, *, folder: Path, seconds: float = 120
    ) -> str:
        """
        Run the block *name* with bash in *folder*, and return its output. It stops at the first command that fails.

        *environment* gives documented variables other values. It may also set KUBECONFIG and PATH.

        Raises:
            KeyError: there is no such block.
            DocumentError: *environment* names another variable, or a command fails. The message has the output.
        """
        given = dict(environment or {})
        strangers = sorted(set(given) - set(self.variables) - _OURS)
        if strangers:
            raise DocumentError(
                f"{self.path}: unknown variable {', '.join(strangers)}; known are {', '.join(sorted(self.variables))}"
            )
        block = self.blocks[name]
        try:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.text],
                env={**os.environ, **self.variables, **given},
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DocumentError(f"{self.path}:{block.line}: {name} did not end in {seconds:g} s") from error
        if done.returncode:
            where = f"{self.path}:{block.line}"
            raise DocumentError(f"{where}: {name} exited with {done.returncode}:\n{block.text}{done.stdout}")
        return done.stdout

    def begin(self, name: str, environment: Mapping[str, str], *, folder: Path, seconds: float = 60) -> str:
        """
        Start the block *name*, and return the first line that it prints, after which it is interrupted as by Ctrl-C.

        Raises:
            KeyError: there is no such block.
            DocumentError: it prints nothing, or does not end well.
        """
        block = self.blocks[name]
        with subprocess.Popen(
            # A job in the background, as this may be one, ignores SIGINT.
            ["env", "--default-signal=INT", "bash", "-euc", f"exec {block.text}"],
            env={**os.environ, **self.variables, **environment},
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            alarm = threading.Timer(seconds, process.kill)
            alarm.start()
            line = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            code = process.wait()
            alarm.cancel()
        if code or not line:
            raise DocumentError(f"{self.path}:{block.line}: {name} printed {line!r} and exited with {code}")
        return line

    def _exported(self) -> dict[str, str]:
        block = self.blocks.get(VARIABLES)
        if block is None:
            return {}
        found = {}
        for number, line in enumerate(block.text.splitlines(), block.line + 1):
            export = _EXPORT.fullmatch(line.partition(" #")[0].rstrip())
            if export is None:
                raise DocumentError(f"{self.path}:{number}: {line!r} is not export NAME=value")
            found[export["name"]] = export["value"]
        return found


def unmarked(path: Path) -> list[str]:
    """Return the place of each block of *path* with commands that no mark names, and of each without a language."""
    found, is_marked = [], False
    for token in MarkdownIt().parse(path.read_text()):
        if token.type == "fence" and not token.info:
            found.append(f"{path}:{_line(token)}: the block has no language; text is for output")
        if token.type == "fence" and token.info == LANGUAGE and not is_marked:
            found.append(f"{path}:{_line(token)}: the block is not marked as run or not run")
        is_html = token.type == "html_block"
        is_marked = is_html and bool(_MARK.fullmatch(token.content) or _NOT_RUN.fullmatch(token.content))
    return found


def _line(token: Token) -> int:
    return token.map[0] + 1 if token.map else 0


def _marked(path: Path) -> list[Block]:
    """Return the marked blocks of *path*, in order."""
    found = []
    mark: tuple[str, int] | None = None
    for token in MarkdownIt().parse(path.read_text()):
        line = _line(token)
        is_block = token.type == "fence" and token.info == LANGUAGE
        if mark is not None:
            if not is_block:
                raise DocumentError(f"{path}:{mark[1]}: no {LANGUAGE} block follows the mark {mark[0]!r}")
            found.append(Block(mark[0], token.content, line))
        named = _MARK.fullmatch(token.content) if token.type == "html_block" else None
        mark = (named["name"], line) if named else None
    if mark is not None:
        raise DocumentError(f"{path}:{mark[1]}: no {LANGUAGE} block follows the mark {mark[0]!r}")
    return found
