"""
What a container gets with its shares.
"""

import pytest
from device_plugin_builders import a_grant, a_policy

from hami_device_plugin.decide.allocation import LOCK_DIRECTORY, Mount


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
