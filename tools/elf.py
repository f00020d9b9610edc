"""
Fields of a 64-bit little-endian ELF object, read without binutils, which Zig does not include.

Source: https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.intro.html
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SHT_DYNAMIC, SHT_DYNSYM = 6, 11
SHT_GNU_VERNEED = 0x6FFFFFFE
DT_NEEDED = 1
STB_LOCAL = SHN_UNDEF = 0
MACHINES = {62: "x86_64", 183: "aarch64"}
"""By e_machine, with the kernel's names."""


class Section(NamedTuple):
    """The fields of a section header."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    detail: int
    alignment: int
    entry_size: int


def machine(path: Path) -> str:
    """Return the processor that the object is for, with the kernel's name: `aarch64`."""
    (number,) = struct.unpack_from("<H", path.read_bytes(), 0x12)
    return MACHINES[number]


def exports(path: Path) -> set[str]:
    """Return the names of the symbols that other objects can bind to."""
    found = set()
    for image, section, names in _sections(path, SHT_DYNSYM):
        for at in range(section.offset, section.offset + section.size, section.entry_size):
            name, binding_and_type, _, index, _, _ = struct.unpack_from("<IBBHQQ", image, at)
            if binding_and_type >> 4 != STB_LOCAL and index != SHN_UNDEF:
                found.add(_text(image, names.offset + name))
    return found


def needed(path: Path) -> list[str]:
    """Return the libraries that are loaded with it."""
    return [
        _text(image, names.offset + value)
        for image, section, names in _sections(path, SHT_DYNAMIC)
        for tag, value in struct.iter_unpack("<qQ", image[section.offset : section.offset + section.size])
        if tag == DT_NEEDED
    ]


def needed_versions(path: Path) -> set[str]:
    """
    Return the symbol versions of other libraries that it needs, e.g. `GLIBC_2.14`.

    Source: https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/symversion.html
    """
    found = set()
    for image, section, names in _sections(path, SHT_GNU_VERNEED):
        library = section.offset
        for _ in range(section.detail):
            _, count, _, first, following = struct.unpack_from("<HHIII", image, library)
            version = library + first
            for _ in range(count):
                _, _, _, name, step = struct.unpack_from("<IHHII", image, version)
                found.add(_text(image, names.offset + name))
                version += step
            library += following
    return found


def _sections(path: Path, kind: int) -> Iterator[tuple[bytes, Section, Section]]:
    """Yield the file, each section of *kind*, and the string table that it refers to."""
    image = path.read_bytes()
    table, entry_size, count = *struct.unpack_from("<Q", image, 0x28), *struct.unpack_from("<HH", image, 0x3A)
    headers = [Section(*struct.unpack_from("<IIQQQQIIQQ", image, table + i * entry_size)) for i in range(count)]
    for section in headers:
        if section.kind == kind:
            yield image, section, headers[section.link]


def _text(image: bytes, at: int) -> str:
    return image[at : image.index(b"\0", at)].decode()
