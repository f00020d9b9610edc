"""
Parse the pages of `docs/`: quoted names, commands and links.

A code span quotes this repository, a command, a path or a setting. Messages of Kubernetes and drivers are in italics
and are not checked. Neighbours: `sources` lists what exists, `test_docs` compares.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PROGRAMS = frozenset(
    {"ctr", "docker", "hami-scheduler", "helm", "kubectl", "make", "pip", "podman", "python", "skopeo", "tox"}
)
_MARKDOWN = MarkdownIt().enable("table")
_SLUG = re.compile(r"[^\w\- ]")


@dataclass(frozen=True, slots=True)
class Page:
    """A parsed Markdown file."""

    path: Path
    spans: tuple[str, ...]
    """Code spans, in order."""
    fences: tuple[str, ...]
    """Fenced blocks without their fences."""
    links: tuple[str, ...]
    headings: frozenset[str]
    """Anchors of the headings, as GitHub builds them."""

    def commands(self) -> Iterator[list[str]]:
        """Yield each command in fences and spans, split into words; each part of a pipe by itself."""
        lines = [line for fence in self.fences for line in fence.replace("\\\n", " ").splitlines()]
        for line in [*lines, *self.spans]:
            for part in re.split(r"\s\|\s|\s&&\s|;\s|\$\(", line):
                words = _words(part)
                while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                    words = words[1:]
                if words and Path(words[0]).name in PROGRAMS:
                    yield [Path(words[0]).name, *words[1:]]


def read_page(path: Path) -> Page:
    """Return the parsed page at *path*."""
    tokens = list(_flat(_MARKDOWN.parse(path.read_text())))
    links = [str(token.attrs.get("href") or token.attrs.get("src")) for token in tokens if token.type in _LINKS]
    headings = [inline.content for opening, inline in pairwise(tokens) if opening.type == "heading_open"]
    return Page(
        path,
        tuple(token.content for token in tokens if token.type == "code_inline"),
        tuple(token.content for token in tokens if token.type == "fence"),
        tuple(links),
        frozenset(_SLUG.sub("", heading.lower().replace("`", "")).replace(" ", "-") for heading in headings),
    )


_LINKS = frozenset({"link_open", "image"})


def _flat(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _flat(token.children or [])


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command.removeprefix("$ "), comments=True)
    except ValueError:
        return []
