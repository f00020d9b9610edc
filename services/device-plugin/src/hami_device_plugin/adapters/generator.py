"""
Run NVIDIA's generator of CDI specs: `nvidia-ctk cdi generate`.

It knows the files of each driver version. It opens NVML, so it may hang on a broken device: it runs as a process with a
deadline, its output is bounded, and its failure is one sentence.
Neighbours: `allocate.cdi.driver` reads what it prints, `driver_cdi` decides when to run it.
Source: https://github.com/NVIDIA/nvidia-container-toolkit/blob/v1.20.1/cmd/nvidia-ctk/cdi/generate/generate.go
"""

import asyncio
import os
import re
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hami_device_plugin.adapters.files import SCRATCH
from hami_device_plugin.decide.allocate.cdi.driver import DriverSpec, Root, decode_driver
from hami_device_plugin.decide.allocate.cdi.edits import SpecError
from hamicommon.errors import HamiError

DEADLINE_SECONDS = 60.0
"""Without persistence mode, each device takes seconds to initialise."""
OUTPUT_BYTES_MAX = 4 * 2**20
"""A node of eight devices needs 60 KiB."""
NVML_MODE = "nvml"
_READ_BYTES = 65536
_ERROR = re.compile(rb'level=(?:error|fatal) msg="((?:[^"\\]|\\.)*)"')


class GeneratorError(HamiError):
    """The generator did not describe the driver."""


class GeneratorHangError(GeneratorError):
    """The generator did not end in time."""


@dataclass(frozen=True, slots=True)
class Generator:
    """The generator of this Node."""

    program: str
    hook: str
    """Host's path of nvidia-cdi-hook."""
    driver: Root
    device: Root
    """The root of the device files."""
    deadline_seconds: float = DEADLINE_SECONDS

    async def describe(self, devices: Sequence[str], mode: str = NVML_MODE) -> DriverSpec:
        """
        Return what *devices*, UUIDs or names of the *mode*, need of the driver.

        Raises:
            GeneratorError: it failed, or printed something else.
        """
        output = await self._run(
            *("cdi", "generate", f"--mode={mode}", "--format=json", "--no-all-device"),
            *("--device-name-strategy=uuid", *(f"--device-id={device}" for device in devices)),
            *(f"--driver-root={self.driver.here}", f"--dev-root={self.device.here}"),
            f"--nvidia-cdi-hook-path={self.hook}",
        )
        try:
            return decode_driver(output, driver=self.driver, device=self.device)
        except SpecError as error:
            raise GeneratorError(f"{self.program} cdi generate --mode={mode}: {error}") from error

    async def _run(self, *arguments: str) -> bytes:
        what = f"{self.program} {' '.join(arguments[:3])}"
        try:
            process = await asyncio.create_subprocess_exec(
                self.program,
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "TMPDIR": SCRATCH},
                start_new_session=True,
            )
        except OSError as error:
            raise GeneratorError(f"{self.program} cannot be run: {error.strerror}") from error
        try:
            async with asyncio.timeout(self.deadline_seconds):
                output, errors = await asyncio.gather(_read(process, process.stdout), _read(process, process.stderr))
                code = await process.wait()
        except TimeoutError as error:
            raise GeneratorHangError(f"{what}: did not end in {self.deadline_seconds:.0f} s") from error
        finally:
            _kill(process)
            await process.communicate()
        if max(len(output), len(errors)) > OUTPUT_BYTES_MAX:
            raise GeneratorError(f"{what}: printed more than {OUTPUT_BYTES_MAX} bytes")
        if code != 0:
            raise GeneratorError(f"{what}: {_reason(errors) or f'ended with {code}'}")
        return output


async def _read(process: asyncio.subprocess.Process, stream: asyncio.StreamReader | None) -> bytes:
    """Return what *process* prints to *stream*. If that is more than OUTPUT_BYTES_MAX, end it."""
    assert stream is not None
    output = b""
    while part := await stream.read(_READ_BYTES):
        if len(output) > OUTPUT_BYTES_MAX:
            _kill(process)
        else:
            output += part
    return output


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill *process* and what it started, unless it has ended."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _reason(errors: bytes) -> str:
    """Return the last error in the program's log; empty if there is none."""
    found = _ERROR.findall(errors)
    return found[-1].decode(errors="replace").replace('\\"', '"') if found else ""


def roots(driver_root: str, driver_root_here: str, dev_root: str) -> tuple[Root, Root]:
    """
    Return the roots of the driver's files and of its device files.

    *driver_root* and *dev_root* are the host's. The driver's root is mounted at *driver_root_here*. Device files are
    looked for below it, or else in this process's own `/dev`, where a runtime may have put them. If the driver's root
    has no `/dev`, they are the host's.
    """
    driver = Root(driver_root_here, driver_root)
    here = os.path.normpath(f"{driver_root_here}/{os.path.relpath(dev_root, driver_root)}")
    if Path(dev_root).is_relative_to(driver_root) and (Path(here) / "dev").is_dir():
        return driver, Root(here, dev_root)
    return driver, Root("/", "/" if dev_root == driver_root else dev_root)
