"""
Files of the plugin: whole or not there, and nothing followed out of a directory that containers write to.
"""

import mmap
import os
from pathlib import Path

import pytest

from hami_device_plugin.adapters import cdi_files, library
from hami_device_plugin.adapters.checkpoint import CheckpointError, decode_checkpoint, read_checkpoint
from hami_device_plugin.adapters.files import prepare_container, write_atomically
from hami_device_plugin.decide import cdi
from hami_device_plugin.decide.allocation import Container, DeviceNode, Grant, GrantPolicy, Mount, allocate
from hamicommon.errors import HamiError
from hamicommon.model import Share

SHARES = (Share("GPU-a", "NVIDIA", 1000, 25), Share("GPU-b", "NVIDIA", 2000, 50))


def a_policy(**changes: object) -> GrantPolicy:
    """Return a policy below /usr/local."""
    return GrantPolicy(**({"hook_path": "/usr/local"} | changes))  # type: ignore[arg-type]


def a_grant(policy: GrantPolicy) -> Grant:
    """Return what a container of two shares gets."""
    return allocate(SHARES, Container("uid", "main"), policy, library="/lib.so", region="r")


def test_unchanged_file_is_not_written_again(host: Path) -> None:
    """So a runtime that watches the directory is not woken."""
    assert write_atomically(host / "f", b"x")
    inode = (host / "f").stat().st_ino
    assert not write_atomically(host / "f", b"x")
    assert inode == (host / "f").stat().st_ino


def test_whoever_has_the_old_file_mapped_keeps_it(host: Path) -> None:
    """A running container's library does not change under it."""
    write_atomically(host / "f", b"old")
    with (host / "f").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        write_atomically(host / "f", b"new")

        assert b"old" == mapped[:]
    assert b"new" == (host / "f").read_bytes()


def test_region_of_the_last_run_is_cleared_where_it_is(host: Path) -> None:
    """A monitor that has it mapped sees it empty."""
    region = host / "c/r.cache"
    region.parent.mkdir()
    region.write_bytes(b"12345678")
    with region.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        prepare_container(region.parent, "r.cache")

        assert bytes(8) == mapped[:]


@pytest.mark.parametrize("kind", ["symlink", "hardlink", "fifo", "directory", "large"])
def test_trap_in_place_of_the_region_is_removed(kind: str, host: Path) -> None:
    """A container can put anything under the name; what it points to stays as it is."""
    victim, region = host / "victim", host / "c/r.cache"
    victim.write_bytes(b"precious")
    region.parent.mkdir()
    match kind:
        case "symlink":
            region.symlink_to(victim)
        case "hardlink":
            region.hardlink_to(victim)
        case "fifo":
            os.mkfifo(region)
        case "directory":
            (region / "deep").mkdir(parents=True)
        case _:
            os.truncate(os.open(region, os.O_CREAT | os.O_WRONLY), 2**40)

    prepare_container(region.parent, "r.cache")

    assert b"precious" == victim.read_bytes()
    assert [] == list(region.parent.iterdir())


def test_link_in_place_of_the_directory_is_replaced(host: Path) -> None:
    """What it points to is neither emptied nor opened to everyone."""
    (host / "victim").mkdir(mode=0o700)
    (host / "victim/f").touch()
    (host / "c").symlink_to(host / "victim")

    prepare_container(host / "c", "r.cache")

    assert not (host / "c").is_symlink()
    assert (host / "victim/f").exists()
    assert 0o700 == (host / "victim").stat().st_mode & 0o777


def test_spec_is_what_a_runtime_reads(host: Path) -> None:
    """Parents are mounted before children, devices carry where they are on the host."""
    grant = Grant(
        {"A": "1"},
        (Mount("/x/vgpu/lib.so", "/h/lib.so", True), Mount("/x/vgpu", "/h/dir", False)),
        (DeviceNode("/dev/nvidia0", "/host/dev/nvidia0"),),
    )

    assert {
        "cdiVersion": "0.5.0",
        "kind": "hami.io/vgpu",
        "devices": [
            {
                "name": "a-1",
                "containerEdits": {
                    "env": ["A=1"],
                    "mounts": [
                        {
                            "hostPath": "/h/dir",
                            "containerPath": "/x/vgpu",
                            "options": ["nosuid", "nodev", "rbind", "rprivate", "rw"],
                        },
                        {
                            "hostPath": "/h/lib.so",
                            "containerPath": "/x/vgpu/lib.so",
                            "options": ["nosuid", "nodev", "rbind", "rprivate", "ro"],
                        },
                    ],
                    "deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/host/dev/nvidia0", "permissions": "rw"}],
                },
            }
        ],
    } == cdi.spec("a-1", grant)


def test_vendor_and_class_are_longer_than_one_character() -> None:
    """containerd 2.1 panics on a shorter one."""
    assert all(len(part) >= 2 for part in cdi.KIND.split("/"))


def test_device_names_are_never_the_same() -> None:
    """A name stands for one Allocate answer."""
    assert 1000 == len({cdi.new_device() for _ in range(1000)})


def test_paths_in_specs_are_in_use(host: Path) -> None:
    """A spec nobody can read resolves no device, so it uses nothing."""
    cdi_files.write_spec(host / "cdi", "uid", "a-1", a_grant(a_policy()))
    (host / "cdi/hami.io-vgpu_uid_a-2.json").write_text("{")

    assert {"/lib.so", "/usr/local/vgpu/ld.so.preload"} <= cdi_files.host_paths(host / "cdi")


def test_library_is_installed_beside_others(host: Path) -> None:
    """Also when a file of the same version has other contents."""
    source = host / "source.so"
    source.write_bytes(b"new")
    (host / "libvgpu.so.1").write_bytes(b"old")

    assert host / "libvgpu.so.2" == library.install(source, host, "2")
    assert (b"old", b"new") == tuple((host / f"libvgpu.so.{v}").read_bytes() for v in "12")
    assert str(host / "libvgpu.so.2") == library.host_library(host, "2")
    assert str(host / "libvgpu.so") == library.host_library(host, "3")


def test_library_that_is_missing_is_named(host: Path) -> None:
    """The message says what to look for and where it was to go."""
    with pytest.raises(HamiError, match=r"library /nowhere.so cannot be installed as .*libvgpu.so.2: No such file"):
        library.install(Path("/nowhere.so"), host, "2")


def test_libraries_nobody_uses_are_removed(host: Path) -> None:
    """This version, those in use and another installer's unversioned file stay."""
    for name in ("libvgpu.so", "libvgpu.so.1", "libvgpu.so.2", "libvgpu.so.3"):
        (host / name).touch()

    assert ["libvgpu.so.1"] == library.remove_unused(host, "3", {str(host / "libvgpu.so.2")})
    assert ["libvgpu.so", "libvgpu.so.2", "libvgpu.so.3"] == sorted(path.name for path in host.iterdir())


def test_preload_file_names_the_library_as_containers_see_it(host: Path) -> None:
    """One line, for the dynamic linker."""
    library.write_preload(host / "vgpu")

    assert f"{host}/vgpu/libvgpu.so\n" == (host / "vgpu/ld.so.preload").read_text()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"Data": null}',
        b'{"Data": {"PodDeviceEntries": [{}]}}',
        b'{"Data":{"PodDeviceEntries":[1]}}',
    ],
)
def test_unknown_checkpoint_is_an_error(text: bytes) -> None:
    """Nothing is guessed from a file in another form."""
    with pytest.raises(CheckpointError, match="unknown form"):
        decode_checkpoint(text)


def test_checkpoint_of_an_old_kubelet_is_read() -> None:
    """Before Kubernetes 1.20 IDs were not grouped by NUMA node."""
    text = (
        b'{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"r",'
        b'"DeviceIDs":["a","b"],"AllocResp":""}]},"Checksum":1}'
    )

    assert frozenset({"a", "b"}) == decode_checkpoint(text)[0].replicas


def test_missing_checkpoint_is_named(host: Path) -> None:
    """The message says which file."""
    with pytest.raises(CheckpointError, match=f"kubelet checkpoint {host}/x: No such file"):
        read_checkpoint(host / "x")


def test_devices_can_be_listed_by_index() -> None:
    """In the order of the shares."""
    grant = a_grant(a_policy(indices={"GPU-a": 3, "GPU-b": 1}))

    assert "3,1" == grant.env["NVIDIA_VISIBLE_DEVICES"]


def test_device_nodes_are_passed_on_request() -> None:
    """Control devices, the granted ones, and channels, with their place below the device root."""
    policy = a_policy(
        minors={"GPU-a": 0, "GPU-b": 7}, control_nodes=("/dev/nvidiactl",), dev_root="/host/", imex_channels=(0,)
    )

    assert [
        ("/dev/nvidiactl", "/host/dev/nvidiactl"),
        ("/dev/nvidia0", "/host/dev/nvidia0"),
        ("/dev/nvidia7", "/host/dev/nvidia7"),
        ("/dev/nvidia-caps-imex-channels/channel0", "/host/dev/nvidia-caps-imex-channels/channel0"),
    ] == [(node.container_path, node.host_path) for node in a_grant(policy).device_nodes]


@pytest.mark.parametrize(
    ("changes", "expected"), [({}, "/tmp/vgpulock"), ({"lock_directory": "/run/lock"}, "/run/lock")]
)
def test_lock_directory_is_where_hami_has_it_unless_another_is_configured(
    changes: dict[str, str], expected: str
) -> None:
    """HAMi's library knows one path, so only the host's side may change."""
    mounts = a_grant(a_policy(**changes)).mounts

    assert [Mount("/tmp/vgpulock", expected, is_read_only=False)] == [
        mount for mount in mounts if mount.container_path == "/tmp/vgpulock"
    ]


def test_licence_is_mounted_where_it_exists() -> None:
    """With its validator, after everything else."""
    mounts = a_grant(a_policy(is_licensed=True)).mounts

    assert ["/tmp/license", "/usr/bin/vgpuvalidator"] == [mount.container_path for mount in mounts[-2:]]


def test_spec_of_an_empty_grant_has_no_empty_lists() -> None:
    """Validators of CDI refuse them."""
    assert [{"name": "a-1", "containerEdits": {"env": ["A=b"]}}] == cdi.spec("a-1", Grant(env={"A": "b"}))["devices"]
