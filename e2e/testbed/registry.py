"""
A throwaway registry of images, by Debian's docker-registry.

Owns its configuration, its process and its folder. Must never leave this machine: it has neither users nor TLS.
Source: https://distribution.github.io/distribution/about/configuration/
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from testbed.debian import commands, ensure
from testbed.processes import Process

PROGRAM = "docker-registry"
START_SECONDS = 20.0


class RegistryError(Exception):
    """The registry did not start. The message has the end of its log."""


@contextmanager
def serving(folder: Path, address: str, enter: Sequence[str] = ()) -> Iterator[Process]:
    """
    Serve the images in *folder* at *address* (`host:port`) during a block, to clients that speak plain HTTP.

    enter   a command that runs another in a network, such as nsenter

    Several may serve one folder. Raises: RegistryError; PackageError if it is missing.
    """
    ensure(commands([PROGRAM]), print)
    folder.mkdir(parents=True, exist_ok=True)
    name = address.replace(":", "-")
    configuration, log = folder / f"{name}.yaml", folder / f"{name}.log"
    settings = {
        "version": 0.1,
        "log": {"level": "info"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "storage")}},
        "http": {"addr": address, "secret": "of all that serve this folder"},
    }
    configuration.write_text(yaml.safe_dump(settings))
    log.unlink(missing_ok=True)
    process = Process(PROGRAM, [*enter, PROGRAM, "serve", str(configuration)], {}, log)
    process.start()
    try:
        _wait(process, address)
        yield process
    finally:
        process.terminate()


def _wait(process: Process, address: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while f"listening on {address}" not in process.log.read_text():
        if not process.is_running or time.monotonic() > deadline:
            raise RegistryError(f"the registry at {address} did not start:\n{process.tail()}")
        time.sleep(0.05)
