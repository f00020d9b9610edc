"""
What our `*_abi.h` headers declare, as C code that asks a compiler about it.

The headers have a simple form: a statement declares one name or a list of names, and nested types have no tag.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from abi.nvidia import COMPILER, EVERY_VERSION

INCLUDE = Path(__file__).resolve().parents[2] / "include"
CUDA_ABI = INCLUDE / "hami/cuda_abi.h"
NVML_ABI = INCLUDE / "hami/nvml_abi.h"
FAKE_NVML = INCLUDE.parent / "tests/fake_driver/nvml"
FAKE_NVML_ABI = FAKE_NVML / "abi.h"


def prototypes(header: Path) -> dict[str, str]:
    """Return our prototype of each symbol."""
    found = re.findall(r"^(?:CUresult|nvmlReturn_t|const char \*) ?((?:cu|nvml)\w+)\([^;{}]*\);", text(header), re.M)
    whole = re.findall(r"^((?:CUresult|nvmlReturn_t|const char \*) ?(?:cu|nvml)\w+\([^;{}]*\);)", text(header), re.M)
    return dict(zip(found, whole, strict=True))


def implemented() -> dict[str, str]:
    """Return the prototype of each function that the fake NVML implements."""
    sources = "\n".join(text(source) for source in sorted(FAKE_NVML.glob("*.c")))
    found = re.findall(r"^API\((nvml\w+), ([^{}]*?)\)\n\{", sources, re.M)
    return {symbol: f"nvmlReturn_t {symbol}({parameters});" for symbol, parameters in found}


def facts(header: Path) -> list[str]:
    """
    Return C expressions whose values are the binary interface: sizes of types, offsets and sizes of fields, numbers.

    Reserved fields are ignored, because other releases give them names.
    """
    code = text(header)
    found: list[str] = re.findall(r"^ {4}(\w+) = ", code, re.M)
    found += re.findall(r"^#define (?!HAMI)(\w+) ", code, re.M)
    for body, name in re.findall(r"^typedef (?:struct|union) \w+ \{\n(.*?)^\} (\w+);", code, re.M | re.S):
        found.append(f"sizeof({name})")
        for field in fields(body):
            if field.rpartition(".")[2] == "reserved":
                continue
            found += [f"offsetof({name}, {field})", f"sizeof((({name} *)0)->{field})"]
    found += [f"sizeof({name})" for name in re.findall(r"^typedef (?!struct \w+ \w+;)[\w ]+ \**(\w+);", code, re.M)]
    return found


def fields(body: str) -> Iterator[str]:
    """Yield the path of each field of a structure's body, inner structures before their parts."""
    depth, start = 0, 0
    for at, letter in enumerate(body):
        depth += (letter == "{") - (letter == "}")
        if letter == ";" and depth == 0:
            yield from _of_statement(body[start:at].strip())
            start = at + 1


def _of_statement(statement: str) -> Iterator[str]:
    nested = re.fullmatch(r"(?:struct|union) \{(.*)\} ?(\w*)(?:\[\w+\])?", statement, re.S)
    if not nested:
        for declarator in statement.split(","):
            yield re.findall(r"(\w+)(?:\[\w+\])*$", declarator.strip())[0]
        return
    if nested[2]:
        yield nested[2]
    for inner in fields(nested[1]):
        yield f"{nested[2]}.{inner}" if nested[2] else inner


def text(header: Path) -> str:
    """Return a header without its comments."""
    return re.sub(r" */\*.*?\*/", "", header.read_text(), flags=re.S)


def evaluate(header: Path, expressions: list[str], folder: Path) -> dict[str, int]:
    """
    Return the value of each expression under a header, without those that use unknown names.
    """
    asked = list(expressions)
    while True:
        lines = [f'    printf("%lld\\n", (long long)({expression}));' for expression in asked]
        head = ["#include <stddef.h>", "#include <stdio.h>", f'#include "{header}"', "int main(void)", "{"]
        (folder / "facts.c").write_text("\n".join([*head, *lines, "    return 0;", "}", ""]))
        done = _compile(folder)
        if done.returncode == 0:
            break
        first = len(head) + 1
        unknown = {int(line) - first for line in re.findall(r"facts\.c:(\d+):\d+: (?:fatal )?error", done.stderr)}
        assert unknown, done.stderr
        assert min(unknown) >= 0, done.stderr
        asked = [expression for at, expression in enumerate(asked) if at not in unknown]
    output = subprocess.run([folder / "facts"], capture_output=True, text=True, check=True).stdout
    return dict(zip(asked, map(int, output.split()), strict=True))


def _compile(folder: Path) -> "subprocess.CompletedProcess[str]":
    said = subprocess.run([*COMPILER, "--version"], capture_output=True, text=True, check=True).stdout
    every_error = ["-ferror-limit=0"] if "clang" in said else []
    options = [*EVERY_VERSION, *every_error, f"-I{INCLUDE}", "-std=gnu11", "-w", "-o", str(folder / "facts")]
    return subprocess.run([*COMPILER, *options, folder / "facts.c"], capture_output=True, text=True, check=False)
