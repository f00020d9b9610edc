"""
YAML in bounded time and memory, `hamicommon.wire.go.yaml_nodes`: a tree of nodes, or YamlError.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from fuzz.targets.forms import DEVICE_CONFIGS, text_of
from hamicommon.wire.go.yaml_nodes import YamlError, read

INPUTS: Final = 30_000
IS_JSON: Final = False


def check(data: bytes) -> None:
    """Read a text as YAML."""
    with suppress(YamlError):
        read(text_of(data))


def seeds() -> Iterator[bytes]:
    """Return each form of a value."""
    yield from (path.read_bytes()[:1500] for path in DEVICE_CONFIGS)
    yield b"a: &x [1, 'two', \"three\\n\", |\n  four\n, ~]\nb: *x\n? c\n: {d: 1, e: [], f: !!str 1}\n---\n- - 1\n"
    yield b"%YAML 1.1\n---\na: >-\n  folded\n\n  text\nb: 0x1F\n...\n"
    yield b"a: &a\n  b: *a\n<<: {c: 1}\n"
