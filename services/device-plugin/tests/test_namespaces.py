"""
Who has which namespace of MPS.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_device_plugin.decide.allocate.container_limits import MpsError
from hami_device_plugin.decide.allocate.namespaces import (
    gets_namespace,
    is_ours,
    namespace_name,
    namespace_percent,
    wanted_namespaces,
)
from hami_device_plugin.decide.probe.enforcement import MpsServer
from hamicommon.model import Share
from hamicommon.pod.containers import ContainerKind, ContainerState
from hamicommon.pod.reading import Container, Pod, read_pod
from hamicommon.vendors import nvidia

VENDOR = nvidia.vendor(nvidia.NvidiaConfig())
COOPERATIVE, HARD = (MpsServer("/", "/driver-root", is_required=hard) for hard in (False, True))


@given(st.text(), st.text())
def test_name_is_one_that_mps_takes(uid: str, container: str) -> None:
    """Whatever a static Pod has as its UID."""
    name = namespace_name(uid, container)

    assert len(name) <= 64
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")
    assert is_ours(name)
    assert not is_ours("default")


def test_folder_of_a_namespace_is_short_enough_for_a_socket() -> None:
    """The path of a socket has at most 107 characters, in the driver's root and in the container."""
    assert len(f"{COOPERATIVE.folder}/{COOPERATIVE.name}/{namespace_name('uid', 'main')}/control") <= 107


def test_container_that_may_be_root_gets_none_or_does_not_start() -> None:
    """By the setting of the Node."""
    tenant = Container("main", ContainerKind.APP, is_never_root=True)
    root = Container("main", ContainerKind.APP)

    assert (True, True, False) == (
        gets_namespace(tenant, COOPERATIVE),
        gets_namespace(tenant, HARD),
        gets_namespace(root, COOPERATIVE),
    )
    with pytest.raises(MpsError, match="hostUsers: false"):
        gets_namespace(root, HARD)


@pytest.mark.parametrize(
    ("percent", "choice", "is_unlimited", "expected"),
    [
        (25, "", False, 25),
        (0, "", False, 100),
        (25, "disable", False, 100),
        (25, "force", False, 25),
        (25, "", True, 100),
    ],
)
def test_percentage_is_the_grants_unless_it_is_switched_off(
    percent: int, choice: str, is_unlimited: bool, expected: int
) -> None:
    """By the Pod's author or the Node's settings, as with the library."""
    container = Container("main", ContainerKind.APP, choices={"GPU_CORE_UTILIZATION_POLICY": choice})

    assert expected == namespace_percent([Share("GPU-a", "NVIDIA", 1, percent)], container, is_unlimited=is_unlimited)


def test_only_containers_that_may_run_here_want_one() -> None:
    """Not those without a share, or that have ended."""
    share, none = "GPU-a,NVIDIA,1000,25:", ""

    def pod(name: str, *granted: str, **status: object) -> Pod:
        names = [f"c{number}" for number in range(len(granted))]
        limits = {"limits": {"nvidia.com/gpu": "1"}}
        containers = [
            {"name": each, "resources": limits if given else {}} for each, given in zip(names, granted, strict=True)
        ]
        return read_pod(
            {
                "metadata": {
                    "name": name,
                    "uid": name,
                    "annotations": {"hami.io/vgpu-devices-allocated": "".join(f"{one};" for one in granted)},
                },
                "spec": {"nodeName": "n1", "initContainers": containers[:1], "containers": containers[1:]},
                "status": status,
            },
            [VENDOR],
        )

    done = {"initContainerStatuses": [{"name": "c0", "state": {"terminated": {"exitCode": 0}}}]}
    pods = [pod("p", share, none, share), pod("q", share, share, **done)]

    found = wanted_namespaces(pods, "n1", VENDOR, lambda _container, _shares: 25)

    assert {("p", "c0", 25), ("p", "c2", 25), ("q", "c1", 25)} == {
        (pod.name, container, percent) for pod, container, percent in found.values()
    }
    assert ContainerState.SUCCEEDED is pods[1].containers[0].state
