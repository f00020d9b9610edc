"""
nvidia-cuda-mps-control: start the control daemon, and send it commands.

Owns the options of the program and its exit status. `pack.py` makes one file of this folder.
"""

import argparse
import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from fake_driver.mps import commands, configuration
from fake_driver.mps.daemon import MESSAGE_BYTES, SEPARATOR, Daemon, administrators
from fake_driver.mps.model import MpsError

FIRST_DRIVER = 615
"""The first driver with protocol 3."""
PROTOCOL = "3"
FAILED = "Failed to initialize MPS control daemon"
SERVER_PROGRAM = Path(sys.argv[0]).absolute().with_name("nvidia-cuda-mps-server")


def main() -> None:
    """Do what the arguments say."""
    options, words = _parser().parse_known_args()
    pipe = _folder("CUDA_MPS_PIPE_DIRECTORY", "/run/nvidia-mps" if os.geteuid() == 0 else "/tmp/nvidia-mps")
    if options.version:
        print(f"nvidia-cuda-mps-control {_driver_version()}")
        return
    if options.daemon or options.foreground:
        if (os.environ.get("CUDA_MPS_PROTOCOL_VERSION") or options.protocol) != PROTOCOL:
            sys.exit(f"{FAILED}: this stand-in has protocol 3 only: -p 3")
        _start(options, pipe)
    else:
        sys.exit(_send(pipe, ["quit"] if options.quit else words))


def _parser() -> argparse.ArgumentParser:
    """Return the options. Those of protocol 3 are there if the driver has it. A plain command asks for none of them."""
    parser = argparse.ArgumentParser(prog="nvidia-cuda-mps-control", allow_abbrev=False)
    parser.add_argument("-d", "--daemon", action="store_true")
    parser.add_argument("-f", "--foreground", action="store_true")
    parser.add_argument("-v", "--version", action="store_true")
    parser.add_argument("-m", "--multiuser", "--multiuser-server", action="store_true")
    parser.add_argument("-q", "--quit", action="store_true")
    parser.set_defaults(protocol="2", apply=None)
    if sys.argv[1:2] and sys.argv[1].startswith("-") and int(_driver_version().split(".")[0]) >= FIRST_DRIVER:
        parser.epilog = f"Modules: {', '.join(commands.MODULES)}"
        parser.add_argument("-a", "--apply", type=Path)
        parser.add_argument("-p", "--protocol", choices=("2", PROTOCOL))
    return parser


def _driver_version() -> str:
    return subprocess.run([SERVER_PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout.strip()


def _folder(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or default)


# --- commands --------------------------------------------------------------------------------------------------------


def _send(pipe: Path, words: list[str]) -> int:
    """Send a command, or those on stdin, and print the answers. Return the exit status."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.connect(str(pipe / "control"))
        except OSError:
            print("Cannot find MPS control daemon process", file=sys.stderr)
            return 1
        if words:
            return _ask(connection, words)
        for line in sys.stdin:
            if line.split():
                _ask(connection, line.split())
    return 0


def _ask(connection: socket.socket, words: list[str]) -> int:
    connection.send(SEPARATOR.join(["command", *words]).encode())
    status, _, text = connection.recv(MESSAGE_BYTES).decode().partition(SEPARATOR)
    if not status:
        print("The MPS control daemon has ended", file=sys.stderr)
        return 1
    if text:
        print(text, flush=True)
    return int(status)


# --- daemon ----------------------------------------------------------------------------------------------------------


def _start(options: argparse.Namespace, pipe: Path) -> None:
    """Run the daemon: here, or in the background from when it accepts clients."""
    log = _folder("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps")
    if options.multiuser and os.geteuid() not in administrators():
        sys.exit(f"{FAILED}: multiuser mode requires root")
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.connect(str(pipe / "control"))
        sys.exit("An instance of this daemon is already running")
    if not options.daemon:
        sys.exit(asyncio.run(_serve(options, pipe, log, sys.stdout.fileno())))
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        os.setsid()
        os.chdir("/")
        sys.exit(asyncio.run(_serve(options, pipe, log, writer)))
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    print(text, end="")
    sys.exit(0 if text.startswith("To connect") else 1)


async def _serve(options: argparse.Namespace, pipe: Path, log: Path, said: int) -> int:
    """Run the daemon, and say on the descriptor *said* how it started. Return the exit status."""
    daemon = Daemon(pipe, log, SERVER_PROGRAM, is_multiuser=options.multiuser)
    try:
        configured = _read(options.apply, daemon.uid) if options.apply else ()
        await daemon.start(commands.run)
        await _configure(daemon, configured)
    except (OSError, MpsError) as error:
        reason = f": {error}" if isinstance(error, MpsError) else ""
        os.write(said, f"{FAILED}{reason}\n".encode())
        daemon.quit()
        await daemon.serve()
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, daemon.quit)
    text = f"To connect CUDA applications to this daemon, set CUDA_MPS_PIPE_DIRECTORY={pipe}\n"
    os.write(said, text.encode())
    if options.daemon:
        os.close(said)
        _redirect(log)
    else:
        loop = asyncio.get_running_loop()
        threading.Thread(target=_read_commands, args=(pipe, daemon, loop), daemon=True).start()
    await daemon.serve()
    return 0


def _redirect(log: Path) -> None:
    """Leave the terminal."""
    nothing, file = os.open(os.devnull, os.O_RDWR), os.open(log / "control.log", os.O_WRONLY | os.O_APPEND)
    os.dup2(nothing, 0)
    os.dup2(file, 1)
    os.dup2(file, 2)


def _read_commands(pipe: Path, daemon: Daemon, loop: asyncio.AbstractEventLoop) -> None:
    """Run the commands on stdin. Its end is the daemon's."""
    _send(pipe, [])
    loop.call_soon_threadsafe(daemon.quit)


def _read(file: Path, uid: int) -> tuple[configuration.Configured, ...]:
    try:
        return configuration.parse(file.read_text(), uid)
    except OSError as error:
        raise MpsError(f"Cannot read the configuration {file}: {error.strerror}") from error


async def _configure(daemon: Daemon, configured: tuple[configuration.Configured, ...]) -> None:
    for each in configured:
        server = await daemon.create_server(each.settings)
        for name, limits in each.namespaces.items():
            namespace = server.namespaces.get(name) or daemon.create_namespace(server, name)
            namespace.limits = limits
