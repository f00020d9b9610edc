"""
The hook lets the driver limit a container, or fails with one sentence and the container does not start.
"""

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hook_node import LEAF, NODE, PID, ROOT, SANITIZER, HookNode
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from elf import needed
from testbed.driver.memory_limits import NO_LIMIT, memory_limits

A, B = (gpu.uuid for gpu in NODE.gpus)
MIB = 1 << 20
STATE = json.dumps(
    {
        "ociVersion": "1.2.0",
        "id": "c1",
        "status": "creating",
        "pid": PID,
        "bundle": "/run/c1",
        "annotations": {"pid": "1", "io.kubernetes.cri.container-name": 'a"pid":7'},
    }
).encode()
LIMIT = [f"{A}={1000 * MIB}"]


both = pytest.mark.parametrize("backend", ["misc", "dmem"], indirect=True)
with_dmem = pytest.mark.parametrize("backend", ["dmem"], indirect=True)


@both
def test_hard_limit_is_the_share_of_each_device(node: HookNode) -> None:
    """Of the container's leaf cgroup, each device its own share. The hook prints nothing."""
    done = node.run(f"{A}={3000 * MIB}", f"{B}={500 * MIB}", state=STATE)

    assert (0, b"", b"") == (done.returncode, done.stdout, done.stderr)
    assert [f"0 {3000 * MIB}", f"0 {500 * MIB}"] == node.limits()


def test_device_without_a_share_is_not_limited(node: HookNode) -> None:
    """The container cannot reach it anyway."""
    assert 0 == node.run(f"{B}={500 * MIB}", state=STATE).returncode

    assert ["none", f"0 {500 * MIB}"] == node.limits()


@both
def test_container_that_may_have_all_is_told_so(node: HookNode) -> None:
    """On misc its cgroup may have the address of an earlier one, and would inherit that one's limit."""
    assert 0 == node.run(*LIMIT, state=STATE).returncode
    node.cgroups.remove(LEAF)
    node.cgroups.create(LEAF)
    assert 0 == node.run(f"{A}=max", state=STATE).returncode

    assert f"0 {NO_LIMIT}" == node.limits()[0]


_RUNNING = """
import ctypes, signal
cuda = ctypes.CDLL("libcuda.so.1")
assert (0, 0) == (cuda.cuInit(0), cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0))
print("runs", flush=True)
signal.pause()
"""


@both
@pytest.mark.timeout(600)
def test_nothing_is_left_of_a_thousand_containers(node: HookNode) -> None:
    """Killed in the hook, after it, or while a program has memory. The cgroups above are as before."""
    above = f"{node.cgroups.root}/kubepods"
    before = memory_limits(above, node.on_host())
    chance = random.Random(1)
    points = chance.choices(["hook", "set", "running"], [60, 37, 3], k=1000)
    for number, point in enumerate(points):
        group = f"/kubepods/pod{number}/c"
        node.cgroups.create(group)
        node.show_cgroup(f"0::{group}\n")
        process = node.start(*LIMIT, state=STATE)
        if point == "hook":
            time.sleep(chance.uniform(0, 0.02))
            process.kill()
        process.wait()
        if point == "running":
            program = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _RUNNING],
                env=node.on_host() | node.cgroups.variables(group),
                stdout=subprocess.PIPE,
            )
            assert program.stdout is not None
            assert b"runs\n" == program.stdout.readline()
            program.kill()
            program.communicate()
        # A call of the driver that began before the kill ends after it.
        _wait(lambda: not node.driver.clients())
        node.cgroups.remove(group)

    assert {} == node.cgroups.soft_limits()
    assert before == memory_limits(above, node.on_host())
    node.show_cgroup(f"0::{LEAF}\n")
    assert 0 == node.run(f"{A}={16384 * MIB}", state=STATE).returncode
    assert f"0 {16384 * MIB}" == node.limits()[0]
    assert 0 == node.run(f"{A}=max", state=STATE).returncode
    assert f"0 {NO_LIMIT}" == node.limits()[0]


@with_dmem
def test_controller_that_the_runtime_left_out_is_enabled(node: HookNode) -> None:
    """crun enables all but dmem for its containers. Every cgroup above has it then."""
    crun = "/kubepods/pod2/c1"
    folder = node.cgroups.create(crun, runtime="crun")
    node.show_cgroup(f"0::{crun}\n")

    assert 0 == node.run(*LIMIT, state=STATE).returncode
    assert [f"0 {1000 * MIB}"] == memory_limits(folder, node.on_host())[:1]


@with_dmem
def test_controller_that_cannot_be_enabled_keeps_the_container_from_starting(node: HookNode) -> None:
    """The sentence has the file and what the runtime has to do."""
    crun = "/kubepods/pod2/c1"
    file = node.cgroups.create(crun, runtime="crun").parent / "cgroup.subtree_control"
    node.show_cgroup(f"0::{crun}\n")
    file.unlink()
    file.mkdir()

    assert node.fail(LIMIT, STATE).startswith(
        f"{file}: the controller dmem cannot be enabled for the container: Is a dir"
    )


def test_driver_is_let_go(node: HookNode) -> None:
    """So that an upgrade of the driver is not kept waiting."""
    node.run(*LIMIT, state=STATE)

    assert () == node.driver.clients()


def test_hybrid_host_shows_the_cgroup_of_version_2_among_others(node: HookNode) -> None:
    """The line of version 2 counts, wherever it is."""
    node.show_cgroup(f"5:memory:/kubepods/other\n1:name=systemd:/x\n0::{LEAF}\n")

    assert 0 == node.run(*LIMIT, state=STATE).returncode


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        pytest.param("0::/\n", "cgroup / is not one of a container", id="root"),
        pytest.param("0::/../c2\n", "cgroup /../c2 is not one of a container", id="above"),
        pytest.param("0::/kubepods/../..\n", "is not one of a container", id="dots at the end"),
        pytest.param("0::/gone (deleted)\n", "/gone (deleted) is not a cgroup of version 2", id="removed"),
        pytest.param("4:memory:/kubepods/pod1/c1\n", "has no cgroup of version 2", id="version 1"),
        pytest.param("", "has no cgroup of version 2", id="nothing"),
        pytest.param(f"0::/{'x' * 5000}\n", "longer than a path can be", id="too long"),
    ],
)
def test_container_without_a_cgroup_of_its_own_does_not_start(node: HookNode, shown: str, reason: str) -> None:
    """A limit of the root would be one of the whole node."""
    node.show_cgroup(shown)

    assert reason in node.fail(LIMIT, STATE)


def test_state_of_a_process_that_is_gone_fails(node: HookNode) -> None:
    """The message has the file that is missing."""
    assert "/proc/77/cgroup: No such file or directory" in node.fail(LIMIT, b'{"pid": 77}')


@pytest.mark.parametrize(
    "argument",
    [
        "",
        A,
        f"{A}=",
        f"{A}=0",
        f"{A}=-1",
        f"{A}=1x",
        f"{A}= 1",
        "=1",
        f"{A}={2**64 - 1}",
        f"{A}={2**80}",
        f"{'x' * 96}=1",
    ],
)
def test_malformed_limit_is_refused_before_any_is_set(node: HookNode, argument: str) -> None:
    """Bytes are digits alone. The largest number would lift the limit."""
    assert f"argument {argument}: a limit is" in node.fail([*LIMIT, argument], STATE)
    assert ["none", "none"] == node.limits()


def test_missing_arguments_are_refused(node: HookNode) -> None:
    """A hook without a device would limit nothing."""
    assert node.fail([], STATE).startswith("no device")
    assert "--driver-root has no value" in node.fail([*LIMIT, "--driver-root"], STATE)
    assert "no more than 64 devices" in node.fail([f"GPU-{number}=1" for number in range(65)], STATE)


def test_driver_that_refuses_keeps_the_container_from_starting(node: HookNode) -> None:
    """The message names device, cgroup, bytes, NVML's reason and what would be right."""
    message = node.fail([f"{A}={16385 * MIB}"], STATE)

    assert f"device {A}, cgroup {node.leaf}: a limit of {16385 * MIB} bytes cannot be set: " in message
    assert "driver r615 or later" in message


def test_unknown_device_is_named(node: HookNode) -> None:
    """It may have been taken out of the node."""
    assert node.fail(["GPU-unknown=1"], STATE).startswith("device GPU-unknown: ")


def test_old_driver_is_refused(node: HookNode) -> None:
    """Its library may have the function already."""
    node.driver.load(version="570.124.06")

    assert "driver r615 or later" in node.fail(LIMIT, STATE)


def test_old_library_is_refused(node: HookNode) -> None:
    """It lacks the function."""
    link = node.folder / "driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    link.unlink()
    link.symlink_to(node.build / "fake_driver/12080/libnvidia-ml.so.1")

    assert "has no nvmlDeviceSetMemoryLimits_v1: memory limits need driver r615" in node.fail(LIMIT, STATE)


def test_driver_root_without_a_driver_is_refused(node: HookNode) -> None:
    """The library of another root, such as the host's, is not taken."""
    assert "has no libnvidia-ml.so.1" in node.fail(LIMIT, STATE, root="empty")


def test_driver_that_is_not_loaded_is_refused(node: HookNode) -> None:
    """NVML's reason is shown."""
    node.driver.unload()

    assert "nvmlInit_v2: " in node.fail(LIMIT, STATE)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        pytest.param(b"", "not a JSON object", id="empty"),
        pytest.param(b"[4242]", "not a JSON object", id="array"),
        pytest.param(b"{}", "no member pid", id="no pid"),
        pytest.param(b'{"annotations": {"pid": 4242}}', "no member pid", id="pid deeper"),
        pytest.param(b'{"pid": 4242, "pid": 1}', "two members pid", id="two pids"),
        pytest.param(b'{"pid": 4242, "p\\u0069d": 1}', "escape", id="escaped name"),
        pytest.param(b'{"pid": "4242"}', "not an integer", id="text"),
        pytest.param(b'{"pid": 0}', "not an integer from 1", id="zero"),
        pytest.param(b'{"pid": -1}', "not an integer", id="negative"),
        pytest.param(b'{"pid": 4242.0}', "not an integer", id="fraction"),
        pytest.param(b'{"pid": 99999999999}', "not an integer", id="too large"),
        pytest.param(b'{"pid": 4242} {}', "something follows", id="two objects"),
        pytest.param(b'{"pid": 4242', "not a JSON object", id="cut"),
        pytest.param(b'{"a": "\x00", "pid": 4242}', "not JSON", id="zero byte"),
        pytest.param(b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b', "pid": 4242}', "nested too deep", id="deep"),
        pytest.param(b'{"pid": 4242}' + b" " * (4 << 20), "more than 4194304 bytes", id="large"),
    ],
)
def test_state_that_is_not_a_runtimes_is_refused(node: HookNode, state: bytes, reason: str) -> None:
    """A Pod's author writes parts of it."""
    assert reason in node.fail(LIMIT, state)
    assert ["none", "none"] == node.limits()


def test_large_annotations_are_read(node: HookNode) -> None:
    """Kubernetes allows 256 KiB of them, and JSON may need six bytes for one."""
    state = json.dumps({"annotations": {"a": "\x01" * (256 << 10)}, "pid": PID}).encode()

    assert 0 == node.run(*LIMIT, state=state).returncode


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
_NAMES = st.sampled_from(["pid", "id", "annotations", "a", ""])
_STATES = st.dictionaries(_NAMES, _VALUES | st.just(PID), max_size=4).map(json.dumps)
_CUT = st.tuples(_STATES, st.integers(0, 60), st.sampled_from(["", "{", '"', "\\", ",", "1", "\n", ":"]))


@pytest.mark.property
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_STATES | _CUT.map(lambda cut: cut[0][: cut[1]] + cut[2] + cut[0][cut[1] :]))
@example('{"pid": 4242}')
@example('{"pid": 4242,}')
@example('{"a": [1,], "pid": 4242}')
@example('{"a": 01, "pid": 4242}')
@example('{"a\\nb": 1, "pid": 4242}')
@example('{"a": -0.5e+3, "pid": 4242}')
def test_state_is_read_as_json_is(node: HookNode, text: str) -> None:
    """What Python refuses is refused. Of the rest, a state has one pid, from 1 on, and no name with an escape."""
    done = node.run(*LIMIT, state=text.encode())

    assert _is_refused(text) == (b"state on stdin" in done.stderr)
    assert done.returncode in (0, 1)


def _is_refused(text: str) -> bool:
    def once(pairs: list[tuple[str, object]]) -> list[tuple[str, object]]:
        return pairs

    try:
        members = json.loads(text, object_pairs_hook=once)
    except ValueError:
        return True
    if not text.lstrip(" \t\r\n").startswith("{"):
        return True
    if any(json.dumps(name, ensure_ascii=False) != f'"{name}"' for name, _ in members):
        return True
    pids = [value for name, value in members if name == "pid"]
    return len(pids) != 1 or type(pids[0]) is not int or not 1 <= pids[0] < 2**31


STEPS = {
    "load": "loading libnvidia-ml.so.1",
    "nvmlInit_v2": "nvmlInit_v2",
    "nvmlDeviceGetHandleByUUID": "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceSetMemoryLimits_v1": "nvmlDeviceSetMemoryLimits_v1",
    "nvmlErrorString": "nvmlErrorString",
    "nvmlShutdown": "nvmlShutdown",
}
"""Where a driver may hang, and how the hook calls it."""


@pytest.fixture
def hanging(node: HookNode) -> HookNode:
    """A node whose NVML hangs in the function that HANGING_NVML names."""
    link = node.folder / "driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    link.unlink()
    link.symlink_to(node.build / "hanging_nvml/libnvidia-ml.so.1")
    return node


@pytest.mark.parametrize("leaves", ["0", "1"], ids=["killable", "unkillable"])
@pytest.mark.parametrize("function", STEPS)
def test_driver_that_hangs_keeps_the_container_from_starting(hanging: HookNode, function: str, leaves: str) -> None:
    """In time, with a sentence that names the step, also if something of the call lives on with the hook's files."""
    began = time.monotonic()
    message = hanging.fail(["--timeout", "1", *LIMIT], STATE, HANGING_NVML=function, HANGING_NVML_LEAVES=leaves)

    assert f"the driver did not return from {STEPS[function]} within 1 s" in message
    assert time.monotonic() - began < 20


def test_child_that_waits_for_the_driver_ends_with_the_hook(hanging: HookNode) -> None:
    """A runtime may kill the hook first, and leaves no process behind."""
    process = hanging.start("--timeout", "60", *LIMIT, state=STATE, HANGING_NVML="nvmlInit_v2")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    _wait(lambda: children.read_text() != "")
    child = Path(f"/proc/{children.read_text().split()[0]}/stat")
    process.kill()
    process.wait()

    _wait(lambda: not child.exists() or ") Z " in child.read_text())


def _wait(is_met: Callable[[], bool]) -> None:
    """Wait up to ten seconds until something is."""
    until = time.monotonic() + 10
    while not is_met():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_driver_that_ends_its_caller_keeps_the_container_from_starting(hanging: HookNode) -> None:
    """A library that crashes is no limit."""
    message = hanging.fail(LIMIT, STATE, HANGING_NVML="nvmlInit_v2", HANGING_NVML_DIES="1")

    assert message.startswith("the driver ended the process in nvmlInit_v2")


@pytest.mark.parametrize("timeout", ["", "0", "-1", "1s", "3601", "99999999999"])
def test_timeout_that_is_none_is_refused(node: HookNode, timeout: str) -> None:
    """The hook never waits for ever."""
    assert f"--timeout {timeout}: it must be 1 to 3600 seconds" in node.fail(["--timeout", timeout, *LIMIT], STATE)


@pytest.mark.skipif(bool(SANITIZER), reason="a sanitizer needs its runtime")
def test_hook_needs_the_c_library_alone(node: HookNode) -> None:
    """It runs on the host, where nothing of an image is."""
    assert set(needed(node.build / "hami-limit-hook")) <= {"libc.so.6", "libdl.so.2"}


def test_hook_has_no_source_of_the_library() -> None:
    """It is not loaded into containers, and shares only the flags of the build."""
    sources = (ROOT / "native/limit-hook/src").glob("*.[ch]")

    assert all('#include "hami/' not in Path(source).read_text() for source in sources)
