"""
`python -m hamicommon`: decode annotations and region files.

An answer is one line of JSON. An error is one line that names the place and the reason.
Neighbours: `cli.formats` is the table of formats.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from hamicommon import __version__
from hamicommon.cli import shapes
from hamicommon.cli.ending import exit_code
from hamicommon.cli.formats import FORMATS
from hamicommon.cli.region_file import read_region, read_trace
from hamicommon.errors import HamiError
from hamicommon.wire.errors import DecodeError, quote
from hamicommon.wire.go import json_reader


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line *arguments* (default: the process's) and return its exit status."""
    options = _parser().parse_args(arguments)
    return exit_code(lambda: _write(options.command(options)), f"hamicommon: {options.subject}", failed=1)


def _decode(options: argparse.Namespace) -> Iterator[str]:
    format_ = next(each for each in FORMATS if each.name == options.subject)
    if options.lines:
        return _line_by_line(lambda line: format_.shape(_line_text(line), options.vendor))
    text = options.text if options.subject == "region" else _text(options.text)
    return _one(format_.shape(text, options.vendor))


def _region(options: argparse.Namespace) -> Iterator[str]:
    """Return the answer of `region`: the JSON of a region file, or a line of JSON for each entry of its trace."""
    if options.trace:
        return (line for entry in read_trace(options.text) for line in _one(shapes.trace_shape(entry)))
    return _one(shapes.region_shape(read_region(options.text)))


def _formats(_options: argparse.Namespace) -> Iterator[str]:
    rows = [("FORMAT", "KEY OR FILE", "WRITTEN BY", "READ BY", "HAMI VERSIONS")]
    rows += [(each.name, each.keys, each.writers, each.readers, each.versions) for each in FORMATS]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n"


def _one(shape: Any) -> Iterator[str]:
    yield from _json(shape)
    yield "\n"


def _json(shape: Any) -> Iterator[str]:
    """Yield the JSON of *shape*; a lazy list is written item by item."""
    if isinstance(shape, (dict, list, str)):
        yield from shapes.one_line(shape)
        return
    separator = "["
    for item in shape:
        yield separator
        yield from shapes.one_line(item)
        separator = ", "
    yield "]" if separator == ", " else "[]"


def _line_by_line(answer: Callable[[bytes], Any]) -> Iterator[str]:
    """Yield one JSON object per line of standard input, in order, with an error for a bad line."""
    for line in sys.stdin.buffer:
        try:
            parts = list(_json(answer(line)))
        except HamiError as error:
            yield from shapes.one_line({"error": str(error)})
        else:
            yield '{"value": '
            yield from parts
            yield "}"
        yield "\n"


def _line_text(line: bytes) -> str:
    """Return the text that *line*, a JSON string, holds."""
    text = _utf8(line, "line")
    if text.lstrip()[:1] != '"':
        raise DecodeError("line", f"{quote(text.strip())} is not a JSON string")
    return str(json_reader.decode(text, json_reader.string))


def _text(argument: str) -> str:
    """Return the text of an argument; `-` is standard input without its last line end."""
    if argument == "-":
        return _utf8(sys.stdin.buffer.read(), "standard input").removesuffix("\n")
    return _utf8(os.fsencode(argument), "argument")


def _utf8(data: bytes, place: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"{place}, byte {error.start}", "is not UTF-8") from None


def _write(parts: Iterable[str]) -> int:
    """Write *parts* as UTF-8, in any locale."""
    for part in parts:
        sys.stdout.buffer.write(part.encode("utf-8", "replace"))
    return 0


class _Command(argparse.ArgumentParser):
    """A sub-command that takes options anywhere among its arguments, as argparse does only on request."""

    _is_asked = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse *args*, options and arguments in any order."""
        if self._is_asked:
            return super().parse_known_args(args, namespace)
        self._is_asked = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_asked = False


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hamicommon", description=str(__doc__).partition("\n\n")[0])
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=_Command)
    names = [each.name for each in FORMATS]

    decode = commands.add_parser("decode", help="print the value of a wire text as one line of JSON")
    decode.add_argument("subject", metavar="FORMAT", choices=names, help=", ".join(names))
    decode.add_argument(
        "text", metavar="TEXT", nargs="?", default="-", help="the text, or the path of a region file; -: standard input"
    )
    decode.add_argument("--vendor", metavar="V", default="", help="key of the vendor (node-devices only)")
    decode.add_argument("--lines", action="store_true", help="read one text per line of standard input")
    decode.set_defaults(command=_decode)

    region = commands.add_parser("region", help="print a region file as one line of JSON")
    region.add_argument("text", metavar="FILE", help="the file; -: standard input")
    region.add_argument(
        "--trace", action="store_true", help="print what each launch paid and waited for: FILE.trace-1, a line for each"
    )
    region.set_defaults(command=_region, subject="region")

    formats = commands.add_parser("formats", help="list the formats with their keys, writers, readers and versions")
    formats.set_defaults(command=_formats, subject="formats")
    return parser


if __name__ == "__main__":
    sys.exit(main())
