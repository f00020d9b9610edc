"""
Which container a control group belongs to, and where the group of a container is.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamicommon.pod.control_groups import ContainerGroup, container_group
from hamicommon.runtime.host.control_groups import ControlGroups
from testbed.driver.hardware import StandInCgroups

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


POD = UID.replace("-", "_")
FOLDERS = {
    "cgroupfs": f"/kubepods/burstable/pod{UID}/{ID}",
    "systemd": "/kubepods.slice/kubepods-besteffort.slice/"
    f"kubepods-besteffort-pod{POD}.slice/cri-containerd-{ID}.scope",
    "guaranteed": f"/kubepods.slice/kubepods-pod{POD}.slice/crio-{ID}.scope",
    "crun": f"/kubepods.slice/kubepods-pod{POD}.slice/crio-{ID}.scope/container",
    "cgroup-root": f"/cluster/kubepods/pod{UID}/{ID}",
    "kind": f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
    f"kubelet-kubepods-burstable-pod{POD}.slice/cri-containerd-{ID}.scope",
}


@pytest.mark.parametrize("path", [pytest.param(path, id=name) for name, path in FOLDERS.items()])
def test_group_is_found_wherever_kubelet_and_runtime_make_it(path: str, tmp_path: Path) -> None:
    """Until it is removed."""
    cgroups, wanted = StandInCgroups(tmp_path), ContainerGroup(UID, ID)
    groups = ControlGroups(str(tmp_path))
    assert {} == groups.find([wanted])
    folder = cgroups.create(path)

    assert {wanted: str(folder)} == groups.find([wanted])
    cgroups.remove(path)
    if not path.endswith("container"):
        assert {} == groups.find([wanted])


def test_group_that_a_container_made_is_no_container(tmp_path: Path) -> None:
    """However it is called."""
    cgroups = StandInCgroups(tmp_path)
    cgroups.create(f"/kubepods/pod{UID}/{ID}/kubepods/pod{UID}/{'d' * 64}")

    assert {} == ControlGroups(str(tmp_path)).find([ContainerGroup(UID, "d" * 64)])


def test_control_groups_of_version_1_have_no_use(tmp_path: Path) -> None:
    """The driver needs version 2."""
    (tmp_path / f"memory/kubepods/pod{UID}/{ID}").mkdir(parents=True)

    assert {} == ControlGroups(str(tmp_path)).find([ContainerGroup(UID, ID)])
