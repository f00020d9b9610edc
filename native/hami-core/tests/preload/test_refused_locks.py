"""
Where the kernel or a filter refuses locks of open files on bytes, another lock holds between a container's processes.

A program installs a seccomp filter before its first call, as a sandbox does for all of its processes. The fake driver's
own locks have a mark in the upper half of the command (hardware/shared_file.c) and pass.
"""

import errno
import json
import os
from dataclasses import replace

import pytest
from containers import Container, nested

FCNTL, FLOCK = (72, 73) if os.uname().machine == "x86_64" else (25, 32)
BYTES = [(FCNTL, command) for command in (36, 37, 38)]
"""The three F_OFD_* commands. Source: Linux, include/uapi/asm-generic/fcntl.h."""

FILL = """
cuda = Cuda()
taken = 0
while cuda.allocate(100 * MIB)[0] == 0: taken += 100
say(taken)
wait()
"""


def refusing(problem: str) -> str:
    """Return the begin of a program to which the kernel answers *problem* for locks on bytes."""
    return f"refuse_system_calls({BYTES}, {getattr(errno, problem)})\n"


@pytest.fixture
def container(container: Container) -> Container:
    """The container, whose programs can refuse system calls."""
    return replace(container, imports=("client", "namespaces"))


@pytest.mark.parametrize("problem", ["EINVAL", "EPERM", "EACCES", "ENOSYS"])
def test_processes_share_the_limit_without_byte_locks(container: Container, problem: str) -> None:
    """
    Two processes get the limit once, and what a killed one had is free for the next.
    """
    program = refusing(problem) + FILL
    first = container.start(program)
    assert first.stdout is not None
    assert 1000 == json.loads(first.stdout.readline())
    second = container.start(program)
    assert second.stdout is not None
    assert 0 == json.loads(second.stdout.readline())
    first.kill()
    first.communicate(timeout=20)

    third = container.start(program)
    assert third.stdout is not None
    assert 1000 == json.loads(third.stdout.readline())
    for process in (second, third):
        assert "" == process.communicate("\n", timeout=20)[1]


def test_first_contexts_exclude_each_other_without_byte_locks(container: Container) -> None:
    """
    Of two processes that start together, the second waits until the first one's context is counted.
    """
    program = refusing("EINVAL") + "wait()\ncuda = Cuda()\nsay(cuda.context.value is not None)\nwait()"
    processes = [
        container.start(program, FAKE_DRIVER_CONTEXT_MIB="400", FAKE_DRIVER_CONTEXT_MS="300") for _ in range(2)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())
    for process in processes:
        assert "" == process.communicate("\n", timeout=20)[1]


def test_process_of_a_nested_pid_namespace_stays_charged_without_byte_locks(container: Container) -> None:
    """
    Outside, its pid means nothing. Its memory counts until it is killed, and no longer.
    """
    other = refusing("EINVAL") + "say(Cuda().allocate(%d * MIB)[0])"
    with nested(container, 700, refusing("EINVAL")) as result:
        results = [result, container.run(other % 400), container.run(other % 200)]

    assert [0, 2, 0, 0] == [*results, container.run(other % 1000)]


def test_nothing_is_allocated_where_no_lock_works(container: Container) -> None:
    """
    Without any lock a process cannot know what others do, so it gets no memory, and says why.
    """
    program = refusing("EPERM") + f"refuse_system_calls([{FLOCK}], {errno.ENOSYS})\nsay(Cuda().allocate(1)[0])"

    result, errors = container.run_and_listen(program)

    assert 2 == result
    assert "can be locked between processes: nothing can be allocated" in errors
