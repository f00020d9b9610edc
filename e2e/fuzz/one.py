"""
The process of one Python target: `python -m fuzz.one TARGET [arguments of libFuzzer]`.

With atheris it finds inputs; `--replay FILE...` only checks the files, and needs no atheris.
"""

import sys
from pathlib import Path
from typing import NoReturn

import structlog

from fuzz import targets
from fuzz.bounds import bounded
from fuzz.json_mutator import JsonMutator


def main() -> None:
    """Run the target that the command line names."""
    name, *arguments = sys.argv[1:]
    structlog.configure(processors=[_drop])
    if arguments[:1] == ["--replay"]:
        check = bounded(targets.load(name).check)
        for path in arguments[1:]:
            check(Path(path).read_bytes())
        return
    _find(name, arguments)


def _drop(*_event: object) -> NoReturn:
    """Leave a service's log out: it is no finding, and costs more than the rest of an input."""
    raise structlog.DropEvent


def _find(name: str, arguments: list[str]) -> None:
    import atheris

    with atheris.instrument_imports(include=[*targets.PACKAGES, f"fuzz.targets.{name}"]):
        target = targets.load(name)
    examples = list(target.seeds())
    for text in examples:  # What is computed once is no cost of an input, and no coverage of it.
        target.check(text)

    def mutate(text: bytes, bytes_max: int) -> bytes:
        changed: bytes = atheris.Mutate(text, bytes_max)  # Looked up at each call, because Setup replaces it.
        return changed

    more = {"custom_mutator": JsonMutator(examples, mutate)} if target.IS_JSON else {}
    atheris.Setup([sys.argv[0], *arguments], bounded(target.check), **more)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
