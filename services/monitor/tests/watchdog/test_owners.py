"""
Which container and Pod a process on a device belongs to.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_monitor.decide.watchdog.control_groups import ContainerGroup, container_group
from hami_monitor.decide.watchdog.owners import PodOwner, pod_owner

UID = "3f1c2b9a-0d4e-4b7a-9c1d-2e5f6a7b8c9d"
OTHER = "00000000-0000-4000-8000-000000000000"
ID = "ab" * 32
SLICE = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"0::/kubepods/burstable/pod{UID}/{ID}", id="cgroupfs"),
        pytest.param(f"0::/kubepods/pod{UID}/{ID}", id="guaranteed"),
        pytest.param(f"0::/kubepods.slice/kubepods-burstable.slice/{SLICE}/cri-containerd-{ID}.scope", id="containerd"),
        pytest.param(f"0::/kubepods.slice/{SLICE}/crio-{ID}.scope/container", id="cri-o"),
        pytest.param(f"0::/../../{SLICE}/cri-containerd-{ID}.scope", id="seen-from-a-cgroup-namespace"),
        pytest.param(f"12:pids:/\n4:memory:/kubepods/pod{UID}/{ID}\n1:name=systemd:/", id="version-1"),
        pytest.param(f"0::/kubepods/pod{UID}/{ID}/kubepods/pod{OTHER}/{'0' * 64}", id="nested-under-a-forged-name"),
    ],
)
def test_process_belongs_to_its_outermost_container(text: str) -> None:
    """Whichever driver named the groups, and whatever the container named those below."""
    assert ContainerGroup(UID, ID) == container_group(text)


@pytest.mark.parametrize(
    "text", ["", "0::/", "0::/system.slice/sshd.service", f"0::/kubepods/pod{UID}", f"0::/../{ID}"]
)
def test_process_outside_all_containers_has_none(text: str) -> None:
    """Programs of the Node are not a Pod's."""
    assert container_group(text) is None


@given(st.text())
@pytest.mark.property
def test_any_text_has_an_answer(text: str) -> None:
    """A container chooses the names of its groups."""
    container_group(text)


def test_pod_tells_its_containers_by_id() -> None:
    """Init, ordinary and ephemeral ones that were started; the others have no id yet."""
    names = {"initContainerStatuses": "first", "containerStatuses": "main", "ephemeralContainerStatuses": "debugger"}
    status = {kind: [{"name": name, "containerID": f"containerd://{name}-id"}] for kind, name in names.items()}
    status["containerStatuses"].append({"name": "waiting"})

    owner = pod_owner({"metadata": {"namespace": "ns", "name": "p"}, "status": status})

    assert PodOwner("ns", "p", {f"{name}-id": name for name in names.values()}) == owner


def test_container_without_library_is_known_from_its_pod() -> None:
    """The device plugin mounts no library if any such variable is true."""
    given_values: dict[str, list[str | None]] = {"off": ["0", "true"], "on": ["false"], "odd": [None, "yes"]}
    containers = [
        {"name": name, "env": [{"name": "CUDA_DISABLE_CONTROL", "value": value} for value in values]}
        for name, values in given_values.items()
    ]

    assert frozenset({"off"}) == pod_owner({"spec": {"containers": containers}}).without_library
