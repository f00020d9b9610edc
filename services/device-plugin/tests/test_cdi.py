"""
CDI specs, and their files.
"""

from pathlib import Path

from device_plugin_builders import a_grant, a_policy

from hami_device_plugin.adapters import cdi_files
from hami_device_plugin.decide.allocate.allocation import DeviceNode, Grant, Mount
from hami_device_plugin.decide.allocate.cdi import spec as cdi


def test_spec_is_what_a_runtime_reads(host: Path) -> None:
    """Parents are mounted before children, and devices have their path on the host."""
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
    } == cdi.spec("a-1", cdi.grant_edits(grant))


def test_vendor_and_class_are_longer_than_one_character() -> None:
    """containerd 2.1 panics on a single character."""
    assert all(len(part) >= 2 for part in cdi.KIND.split("/"))


def test_device_names_are_never_the_same() -> None:
    """A name belongs to one Allocate answer."""
    assert 1000 == len({cdi.new_device() for _ in range(1000)})


def test_spec_of_an_empty_grant_has_no_empty_lists() -> None:
    """CDI validators reject them."""
    assert [{"name": "a-1", "containerEdits": {"env": ["A=b"]}}] == cdi.spec(
        "a-1", cdi.grant_edits(Grant(env={"A": "b"}))
    )["devices"]


def test_paths_in_specs_are_in_use(host: Path) -> None:
    """A spec that cannot be read uses nothing."""
    edits = cdi.grant_edits(a_grant(a_policy())) + cdi.mark_edits("/hook", "/mark")
    cdi_files.write_spec(cdi_files.spec_path(host / "cdi", "uid", "a-1"), cdi.spec("a-1", edits))
    (host / "cdi/hami.io-vgpu_uid_a-2.json").write_text("{")

    assert {"/lib.so", "/usr/local/vgpu/ld.so.preload", "/hook"} <= cdi_files.host_paths(host / "cdi")
