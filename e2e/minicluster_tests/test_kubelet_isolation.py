"""A container sees its mounts, and nothing stays on the host, with and without namespaces."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest

from minicluster.kubelet.podspec import User
from minicluster.kubelet.runtime import isolation
from minicluster.kubelet.runtime.cdi import CdiCache
from minicluster.kubelet.runtime.containers import NvidiaRuntime, RunningContainer, Runtime, Wanted, kill_all
from minicluster.kubelet.runtime.isolation import Mount
from minicluster.pids import start_ticks
from testbed.waiting import eventually

KINDS = [kind for kind in (isolation.MOUNT, isolation.USER) if isolation.probe(kind, False) is None]
EVERY_KIND = [*KINDS, isolation.MAPPING]
TOP, DEEP = "/minicluster-test-top/deep", "/usr/local/minicluster-test"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that prints a line when it is loaded."""
    directory = tmp_path_factory.mktemp("library")
    source = directory / "loaded.c"
    source.write_text(
        "#include <unistd.h>\n"
        '__attribute__((constructor)) static void loaded(void) { if (write(1, "LOADED\\n", 7)) {} }\n'
    )
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", directory / "loaded.so", source], check=True)
    return directory / "loaded.so"


async def run(
    root: Path,
    kind: str,
    script: str,
    *mounts: Mount,
    environment: dict[str, str] | None = None,
    nvidia: NvidiaRuntime | None = None,
    with_pids: bool = False,
    user: User | None = None,
) -> tuple[int, str]:
    """Run *script* in a new container, and return exit code and output."""
    argv = ["sh", "-c", script]
    container = await start(
        root, kind, argv, *mounts, environment=environment, nvidia=nvidia, with_pids=with_pids, user=user
    )
    ended = await asyncio.wait_for(container.wait(), 10)
    return ended.code, container.log.read_text() + ended.message


async def start(
    root: Path,
    kind: str,
    argv: list[str],
    *mounts: Mount,
    environment: dict[str, str] | None = None,
    nvidia: NvidiaRuntime | None = None,
    with_pids: bool = False,
    user: User | None = None,
) -> RunningContainer:
    """Start a container below *root*."""
    cdi = CdiCache(root / "cdi")
    cdi.start()
    try:
        runtime = Runtime(root, cdi, nvidia, kind, with_pids)
        variables = {"PATH": "/usr/bin:/bin", **(environment or {})}
        return await runtime.start(Wanted("uid", "main", 0, argv, variables, "/", list(mounts), (), user or User()))
    finally:
        cdi.close()


@pytest.mark.parametrize("kind", EVERY_KIND)
async def test_preload_file_takes_effect_in_the_container_only(tmp_path: Path, kind: str, library: Path) -> None:
    """The library is loaded from its path in the container, and the host's /etc gets no file."""
    preload = tmp_path / "preload"
    preload.write_text(f"{DEEP}/loaded.so\n")
    (tmp_path / "state").mkdir()
    mounts = [
        (f"{DEEP}/loaded.so", str(library), True),
        (DEEP, str(tmp_path / "state"), False),
        ("/etc/ld.so.preload", str(preload), True),
    ]

    before = sorted(Path("/etc").iterdir()), sorted(Path("/usr/local").iterdir())
    code, output = await run(tmp_path, kind, "true", *mounts)

    assert (0, "LOADED\n") == (code, output)
    assert before == (sorted(Path("/etc").iterdir()), sorted(Path("/usr/local").iterdir()))


@pytest.mark.parametrize("kind", EVERY_KIND)
async def test_mount_point_missing_in_a_mounted_directory_stays_there(tmp_path: Path, kind: str) -> None:
    """Like with runc, a file mounted below a mounted directory leaves an empty file in the host's directory."""
    (tmp_path / "state").mkdir()
    (tmp_path / "file").write_text("contents")
    mounts = [(DEEP, str(tmp_path / "state"), False), (f"{DEEP}/libvgpu.so", str(tmp_path / "file"), True)]

    code, _ = await run(tmp_path, kind, "true", *mounts)

    assert 0 == code
    assert {"libvgpu.so": ""} == {path.name: path.read_text() for path in (tmp_path / "state").iterdir()}


@pytest.mark.parametrize("kind", EVERY_KIND)
async def test_file_in_a_memory_file_system_is_the_hosts(tmp_path: Path, kind: str) -> None:
    """The container's other files beside it do not reach the host."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state/file").touch()
    mounts = [(DEEP, isolation.memory(["mode=0777"]), False), (f"{DEEP}/file", str(tmp_path / "state/file"), False)]

    script = 'echo hi > "$FILE"; test -n "$MAPPED" || touch "$FILE.beside"'
    variables = {"FILE": f"{DEEP}/file"} | ({"MAPPED": "1"} if kind == isolation.MAPPING else {})
    code, _ = await run(tmp_path, kind, script, *mounts, environment=variables)

    assert 0 == code
    assert {"file": "hi\n"} == {path.name: path.read_text() for path in (tmp_path / "state").iterdir()}


@pytest.mark.parametrize("kind", KINDS)
async def test_new_top_level_directory_exists_in_the_container_only(tmp_path: Path, kind: str) -> None:
    """Files in it are in the source of the mount, and nowhere else on the host."""
    (tmp_path / "source").mkdir()

    mount = (TOP, str(tmp_path / "source"), False)
    code, output = await run(tmp_path, kind, f"echo hi > {TOP}/file; ls -d /usr", mount)

    assert (0, "/usr\n") == (code, output)
    assert "hi\n" == (tmp_path / "source" / "file").read_text()
    assert not Path(TOP).parent.exists()


@pytest.mark.parametrize("kind", KINDS)
async def test_read_only_mount_cannot_be_written(tmp_path: Path, kind: str) -> None:
    """The same source is writable through another mount."""
    (tmp_path / "source").mkdir()
    mounts = [(f"{TOP}/ro", str(tmp_path / "source"), True), (f"{TOP}/rw", str(tmp_path / "source"), False)]

    _, output = await run(tmp_path, kind, f"touch {TOP}/rw/a && ls {TOP}/ro; touch {TOP}/ro/b 2>&1", *mounts)

    assert output.startswith("a\n")
    assert "Read-only file system" in output


@pytest.mark.parametrize("kind", KINDS)
async def test_mount_does_not_hide_the_source_of_another(tmp_path: Path, kind: str) -> None:
    """A directory mounted onto its parent does not hide the other sources, which are paths of the host."""
    (tmp_path / "hook" / "own").mkdir(parents=True)
    (tmp_path / "hook" / "file").write_text("from the host")
    hook = str(tmp_path / "hook")
    mounts = [(hook, f"{hook}/own", False), (f"{hook}/file", f"{hook}/file", True)]

    _, output = await run(tmp_path, kind, f"cat {hook}/file", *mounts)

    assert "from the host" == output


async def test_mapping_rewrites_environment_arguments_and_preload(tmp_path: Path) -> None:
    """Without namespaces, a path below a mount becomes the host's path, and other values stay."""
    (tmp_path / "state").mkdir()
    variables = {"CACHE": f"{DEEP}/a.cache", "LIST": f"/x:{DEEP}/b", "DEVICES": "GPU-1:GPU-2", "NEAR": f"{DEEP}er"}
    mounts = [(DEEP, str(tmp_path / "state"), False)]

    _, output = await run(
        tmp_path, isolation.MAPPING, 'echo "$CACHE $LIST $DEVICES $NEAR"', *mounts, environment=variables
    )

    state = tmp_path / "state"
    assert f"{state}/a.cache /x:{state}/b GPU-1:GPU-2 {DEEP}er\n" == output


@pytest.mark.parametrize(
    ("visible", "expected"),
    [("GPU-1", "/driver:/mine /hardware GPU-1"), ("all", "/driver:/mine /hardware all")]
    + [(hidden, f"/mine  {hidden}") for hidden in ("", "void", "none")],
)
async def test_driver_is_added_where_devices_are_visible(tmp_path: Path, visible: str, expected: str) -> None:
    """As in the NVIDIA container runtime, NVIDIA_VISIBLE_DEVICES decides."""
    nvidia = NvidiaRuntime(Path("/driver"), Path("/hardware"))
    variables = {"NVIDIA_VISIBLE_DEVICES": visible, "LD_LIBRARY_PATH": "/mine"}
    script = 'echo "$LD_LIBRARY_PATH $FAKE_DRIVER_DIR $NVIDIA_VISIBLE_DEVICES"'

    _, output = await run(tmp_path, EVERY_KIND[0], script, environment=variables, nvidia=nvidia)

    assert f"{expected}\n" == output


@pytest.mark.skipif(not KINDS, reason="needs namespaces")
async def test_process_namespace_numbers_from_one(tmp_path: Path) -> None:
    """In the container, pids differ from the host's, and /proc shows only the container."""
    code, output = await run(tmp_path, KINDS[0], "echo $$; ls /proc | grep -c '^[0-9]'", with_pids=True)

    assert 0 == code
    assert "1" == output.split()[0]
    assert int(output.split()[1]) < 6


@pytest.mark.parametrize("kind", EVERY_KIND)
async def test_program_that_cannot_be_executed_has_ended_with_128(tmp_path: Path, kind: str) -> None:
    """The reason is StartError, and the message names the executable."""
    container = await start(tmp_path, kind, ["no-such-program"])

    ended = await container.wait()

    assert (128, "StartError") == (ended.code, ended.reason)
    assert 'exec: "no-such-program": executable file not found in $PATH' in ended.message


async def test_nothing_of_a_container_outlives_its_first_process(tmp_path: Path) -> None:
    """Also not a process that left its session."""
    script = f"setsid sh -c 'sleep 0.3; touch {tmp_path}/outlived' & exit 3"

    code, _ = await run(tmp_path, EVERY_KIND[0], script)
    await asyncio.sleep(0.5)

    assert 3 == code
    assert not (tmp_path / "outlived").exists()


NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
AS_USER = User(60000, may_gain_privileges=False)


@NEEDS_ROOT
@pytest.mark.parametrize("kind", [isolation.MOUNT, isolation.MAPPING])
@pytest.mark.parametrize(
    ("user", "expected"),
    [(AS_USER, ["60000 0 0", "0000000000000000", "1"]), (User(60000, 7), ["60000 7 7", "0000000000000000", "0"])],
)
async def test_container_of_another_user_has_no_right_of_root(
    tmp_path: Path, kind: str, user: User, expected: list[str]
) -> None:
    """User, group and all groups; effective capabilities; whether a program can gain privileges."""
    script = "echo $(id -u) $(id -g) $(id -G); awk '/^CapEff|^NoNewPrivs/ {print $2}' /proc/self/status"

    code, output = await run(tmp_path, kind, script, user=user)

    assert (0, expected) == (code, output.splitlines())


@NEEDS_ROOT
async def test_container_of_another_user_can_run_the_programs_of_the_image(tmp_path: Path) -> None:
    """Folders above them may be closed to others on the host, and stay so."""
    closed = tmp_path / "closed"
    program = closed / "bin/program"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho runs\n")
    program.chmod(0o755)
    closed.chmod(0o700)
    nvidia = NvidiaRuntime(program, program)

    script = f'{program}; exec "{sys.executable}" -c "print(1)"'
    _, output = await run(tmp_path, isolation.MOUNT, script, user=AS_USER, nvidia=nvidia)

    assert ["runs", "1"] == [output.splitlines()[0], output.splitlines()[-1]]
    assert 0o700 == closed.stat().st_mode & 0o777


@NEEDS_ROOT
async def test_container_of_another_user_ends_with_its_shim(tmp_path: Path) -> None:
    """The kernel forgets who is told of a parent's end when the user changes."""
    container = await start(tmp_path, isolation.MOUNT, ["sleep", "1000"], user=AS_USER)
    run = orjson.loads((tmp_path / "pods/uid/main/0.run.json").read_bytes())

    os.kill(run["shim_pid"], signal.SIGKILL)

    assert "shim was killed" in (await asyncio.wait_for(container.wait(), 5)).message
    await eventually(lambda: start_ticks(run["pid"]) != run["ticks"], "the program ends")


async def test_stop_kills_after_the_grace_period(tmp_path: Path) -> None:
    """A program that ignores SIGTERM is killed, which its exit code shows."""
    script = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    container = await start(tmp_path, EVERY_KIND[0], ["sh", "-c", script])
    await eventually(lambda: "ready" in container.log.read_text())
    began = time.monotonic()

    ended = await container.stop(0.3)

    assert 137 == ended.code
    assert time.monotonic() - began >= 0.3


async def test_all_containers_of_a_folder_can_be_killed_without_a_kubelet(tmp_path: Path) -> None:
    """This cleans up after a killed kubelet."""
    container = await start(tmp_path, EVERY_KIND[0], ["sleep", "1000"])

    kill_all(tmp_path)

    assert 137 == (await asyncio.wait_for(container.wait(), 5)).code
