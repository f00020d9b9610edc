"""
What a container gets with its shares.
"""

import pytest
from device_plugin_builders import SHARES, a_grant, a_policy, share

from hami_device_plugin.decide.allocate.allocation import LOCK_DIRECTORY, Container, Grant, Library, Mount, allocate
from hamicommon.model import Share
from hamicommon.wire.limits_file import DeviceLimits


def test_devices_can_be_listed_by_index() -> None:
    """In the order of the shares."""
    grant = a_grant(a_policy(indices={"GPU-a": 3, "GPU-b": 1}))

    assert "3,1" == grant.env["NVIDIA_VISIBLE_DEVICES"]


@pytest.mark.parametrize("strategies", [("envvar",), ("volume-mounts",), ("envvar", "volume-mounts")])
def test_uuids_are_in_the_order_of_the_limits(strategies: tuple[str, ...]) -> None:
    """Under every strategy, beside what HAMi's library reads."""
    env = a_grant(a_policy(list_strategies=strategies, indices={"GPU-a": 3, "GPU-b": 1})).env

    assert "GPU-a,GPU-b" == env["HAMI_DEVICE_UUIDS"]
    assert {"CUDA_DEVICE_MEMORY_LIMIT_0", "CUDA_DEVICE_MEMORY_LIMIT_1"} <= env.keys()


def test_device_nodes_are_passed_on_request() -> None:
    """Control devices, granted devices and channels, with their paths below the device root."""
    policy = a_policy(
        minors={"GPU-a": 0, "GPU-b": 7}, control_nodes=("/dev/nvidiactl",), dev_root="/host/", imex_channels=(0,)
    )

    assert [
        ("/dev/nvidiactl", "/host/dev/nvidiactl"),
        ("/dev/nvidia0", "/host/dev/nvidia0"),
        ("/dev/nvidia7", "/host/dev/nvidia7"),
        ("/dev/nvidia-caps-imex-channels/channel0", "/host/dev/nvidia-caps-imex-channels/channel0"),
    ] == [(node.container_path, node.host_path) for node in a_grant(policy).device_nodes]


def test_container_with_our_library_gets_no_lock_directory() -> None:
    """Our library locks its region file, and tenants share no directory."""
    assert [] == [mount for mount in a_grant(a_policy()).mounts if mount.container_path == LOCK_DIRECTORY]


@pytest.mark.parametrize(
    ("changes", "expected"), [({}, LOCK_DIRECTORY), ({"lock_directory": "/run/lock"}, "/run/lock")]
)
def test_container_with_hamis_library_gets_the_lock_directory(changes: dict[str, str], expected: str) -> None:
    """HAMi's library has a fixed path, so only the host's side may change."""
    mounts = a_grant(a_policy(**changes), is_hamis_library=True).mounts

    assert [Mount("/tmp/vgpulock", expected, is_read_only=False)] == [
        mount for mount in mounts if mount.container_path == LOCK_DIRECTORY
    ]


def test_licence_is_mounted_where_it_exists() -> None:
    """With its validator, after all other mounts."""
    mounts = a_grant(a_policy(is_licensed=True)).mounts

    assert ["/tmp/license", "/usr/bin/vgpuvalidator"] == [mount.container_path for mount in mounts[-2:]]


def by_identity(
    container: Container,
    shares: tuple[Share, ...] = SHARES,
    library: Library = Library("/lib.so"),  # noqa: B008
) -> Grant:
    """Return what *container* gets with *shares* in a CDI spec."""
    return allocate(shares, container, a_policy(), library=library, region="r", is_private=True)


def test_limits_file_has_the_shares_and_what_the_environment_has() -> None:
    """So a process that lost its environment is held to the same, in the same region."""
    grant = by_identity(Container("uid", "main"))

    assert grant.limits
    assert {"GPU-a", "GPU-b"} == grant.limits.devices.keys()
    assert {
        name: value for name, value in grant.env.items() if not name.startswith("NVIDIA_")
    } == grant.limits.environment
    assert "/usr/local/vgpu/r.cache" == grant.limits.environment["CUDA_DEVICE_MEMORY_SHARED_CACHE"]
    assert Mount("/usr/local/vgpu/limits", "/usr/local/vgpu/containers/uid_main", is_read_only=True) in grant.mounts


def test_limits_file_under_the_lock_is_not_in_the_directory_that_the_container_can_write() -> None:
    """Its directory is HAMi's, writable; the limits are mounted over a folder of it, read-only."""
    grant = a_grant(a_policy())
    directory = "/usr/local/vgpu/containers/.limits/uid_main"

    assert grant.limits
    assert Mount("/usr/local/vgpu/limits", directory, is_read_only=True) in grant.mounts
    assert Mount("/usr/local/vgpu", "/usr/local/vgpu/containers/uid_main", is_read_only=False) in grant.mounts


def test_share_without_cores_has_no_limit_on_time() -> None:
    """HAMi writes 0 for it, the limits file 100."""
    shares = (Share("GPU-a", "NVIDIA", 1000, 0), Share("GPU-b", "NVIDIA", 2000, 30))
    limits = by_identity(Container("uid", "main"), shares).limits

    assert limits
    assert {"GPU-a": DeviceLimits(1000 << 20, 100), "GPU-b": DeviceLimits(2000 << 20, 30)} == limits.devices


def test_choice_of_the_pods_author_is_in_the_limits_file() -> None:
    """The Node's own setting wins."""
    chosen = Container("uid", "main", choices={"GPU_CORE_UTILIZATION_POLICY": "disable", "CUDA_OVERSUBSCRIBE": "no"})
    limits = by_identity(chosen).limits

    assert limits
    assert "disable" == limits.environment["GPU_CORE_UTILIZATION_POLICY"]


@pytest.mark.parametrize(
    "grant",
    [
        by_identity(Container("uid", "main", is_control_disabled=True)),
        by_identity(Container("uid", "main"), library=Library("/lib.so", is_hamis=True)),
        by_identity(Container("uid", "main"), tuple(share(f"GPU-{index}") for index in range(17))),
        a_grant(a_policy(), is_hamis_library=True),
    ],
    ids=["control disabled", "HAMi's library", "17 devices", "HAMi's library under the lock"],
)
def test_container_without_limits_file(grant: Grant) -> None:
    """Where the library is off or HAMi's, or cannot hold the limits."""
    assert grant.limits is None
    assert not any(mount.container_path.endswith("/limits") for mount in grant.mounts)
