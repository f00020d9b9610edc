"""
Questions about MPS with namespaces, which limit compute.
"""

import os
import signal
from typing import Any, Final

from gpu.questions.host import IN_NAMESPACES, Host, NotTriedError, until
from gpu.questions.question import question
from hardware.process import Process

from testbed.driver.mps import MpsControl

PERCENT: Final = 25
KERNEL_MS: Final = 200
_UNLIMITED: Final = "no limit"
_ENDED: Final = "fails"


def _whole(host: Host) -> int:
    """Return how many multiprocessors the first device has."""
    found = host.process()
    host.ask(found, "start_mps()")
    return int(host.ask(found, "multiprocessors()"))


def _limited(host: Host, *namespaces: str) -> MpsControl:
    """Return a daemon whose server has these namespaces of PERCENT."""
    control = host.daemon()
    for name in namespaces:
        control.add_namespace("s", name, PERCENT)
    return control


def _program(host: Host, process: Process, whole: int) -> str:
    """Return how a new program of *process* is limited."""
    joined, count = host.ask(process, "in_child('[join(), multiprocessors()]')")
    if joined != [0, 0]:
        return _ENDED
    return _UNLIMITED if count == whole else "the limit"


@question("the limit")
def new_program_in_a_namespace(host: Host) -> str:
    """How is a program limited that starts in a namespace with a percentage?"""
    control = _limited(host, "n")
    pipe = str(control.pipe / "s/n")
    return _program(host, host.process(CUDA_MPS_PIPE_DIRECTORY=pipe), _whole(host))


@question("each client's", kinder=("that of all together",))
def percentage_of_several_clients(host: Host) -> str:
    """Is the percentage of a namespace that of each of its clients, or of all together?"""
    whole = _whole(host)
    control = _limited(host, "n")
    clients = [host.client(control, "n") for _ in range(2)]
    command = f"busy_seconds({KERNEL_MS}, {whole})"
    alone = host.ask(clients[0], command)
    for client in clients:
        client.send(command)
    together = max(host.answer(client) for client in clients)
    return "each client's" if together < 1.5 * alone else "that of all together"


@question("let in", kinder=("kept out",))
def stranger_beside_an_idle_server(host: Host) -> str:
    """In mode EXCLUSIVE_PROCESS, does a server without clients keep a stranger from the device?"""
    host.daemon()
    host.exclusive()
    return "let in" if host.ask(host.process(), "join()") == [0, 0] else "kept out"


@question("kept out")
def stranger_beside_clients(host: Host) -> str:
    """In mode EXCLUSIVE_PROCESS, does a server with a client keep a stranger from the device?"""
    control = _limited(host, "n")
    host.exclusive()
    host.client(control, "n")
    return "let in" if host.ask(host.process(), "join()") == [0, 0] else "kept out"


@question("both work")
def clients_of_two_namespaces(host: Host) -> str:
    """In mode EXCLUSIVE_PROCESS, do clients of two namespaces of one server work at once?"""
    control = _limited(host, "a", "b")
    host.exclusive()
    try:
        clients = [host.client(control, name) for name in "ab"]
    except NotTriedError:
        return "one does not start"
    for client in clients:
        client.send("[work(20), finish()]")
    return "both work" if [host.answer(client) for client in clients] == [[0, 0]] * 2 else "one fails"


@question(_UNLIMITED, kinder=("the limit", _ENDED))
def program_after_the_daemon_has_died(host: Host) -> str:
    """How is a new program of a namespace limited once the daemon has died?"""
    whole, control = _whole(host), _limited(host, "n")
    program = host.process(CUDA_MPS_PIPE_DIRECTORY=str(control.pipe / "s/n"))
    _end(control)
    return _program(host, program, whole)


@question(_UNLIMITED, kinder=("the limit", _ENDED))
def program_after_the_daemon_has_started_again(host: Host) -> str:
    """How is a new program of a running container limited once the daemon and its namespace were made anew?"""
    whole, control = _whole(host), _limited(host, "n")
    folder, mounted = control.pipe / "s/n", control.folder / "mounted"
    mounted.mkdir()
    container = host.process(prefix=(*IN_NAMESPACES, "--mount"), CUDA_MPS_PIPE_DIRECTORY=str(mounted))
    mount = f"__import__('subprocess').call(['mount', '--bind', {str(folder)!r}, {str(mounted)!r}])"
    if host.ask(container, mount) != 0:
        raise NotTriedError("a folder cannot be mounted")
    if _program(host, container, whole) != "the limit":
        raise NotTriedError("a mounted folder leads to no namespace")
    _end(control)
    host.start(control)
    control.add_namespace("s", "n", PERCENT)
    return _program(host, container, whole)


@question(_ENDED, kinder=("goes on",))
def client_whose_daemon_dies(host: Host) -> str:
    """Does a client work on once the daemon has died?"""
    control = _limited(host, "n")
    client = host.client(control, "n")
    _end(control)
    return "goes on" if host.ask(client, "[work(20), finish()]") == [0, 0] else _ENDED


@question("works")
def graph_in_a_namespace(host: Host) -> str:
    """Does a CUDA graph work in a namespace?"""
    return _words_in_a_namespace(host, "graph(20)", "CUDA graphs")


@question("works")
def nccl_in_a_namespace(host: Host) -> str:
    """Does NCCL work in a namespace?"""
    return _words_in_a_namespace(host, "all_reduce()", "libnccl.so.2")


@question("works")
def profiler_in_a_namespace(host: Host) -> str:
    """Does CUPTI, by which profilers see kernels, work in a namespace?"""
    return _words_in_a_namespace(host, "profile()", "libcupti.so.12")


def _words_in_a_namespace(host: Host, words: str, what: str) -> str:
    control = _limited(host, "n")
    results: Any = host.ask(host.client(control, "n"), words)
    if results is None:
        raise NotTriedError(f"{what} is not installed")
    return "works" if not any(results) else _ENDED


def _end(control: MpsControl) -> None:
    """Kill the daemon, and wait until no command reaches it."""
    os.kill(control.pid, signal.SIGKILL)
    until(lambda: control.run("server", "list").returncode != 0)


QUESTIONS: Final = (
    new_program_in_a_namespace,
    percentage_of_several_clients,
    stranger_beside_an_idle_server,
    stranger_beside_clients,
    clients_of_two_namespaces,
    program_after_the_daemon_has_died,
    program_after_the_daemon_has_started_again,
    client_whose_daemon_dies,
    graph_in_a_namespace,
    nccl_in_a_namespace,
    profiler_in_a_namespace,
)
