"""
What the generator's description of a driver becomes in our specs, and which way a Node goes.
"""

import json
from pathlib import Path

import pytest
from device_plugin_builders import a_grant, a_policy

from hami_device_plugin.decide.allocate.cdi import spec as cdi
from hami_device_plugin.decide.allocate.cdi.driver import DriverSpec, Root, decode_driver
from hami_device_plugin.decide.allocate.cdi.edits import SpecError
from hami_device_plugin.decide.probe.mode import Mode
from hami_device_plugin.decide.probe.strategy import StrategyError, choose_strategy

TEXT = (Path(__file__).parent / "vectors/driver.json").read_bytes()
"""What nvidia-ctk 1.20.1 prints for one device, with the driver's root at /driver-root."""
GPU = "GPU-cccccccc-0000-4000-8000-000000000000"
HERE = Root("/driver-root", "/run/nvidia/driver")
IDENTITY, LOCK = Mode("identity", "containerd://2.1.8 has CDI"), Mode("lock", "containerd 1.7.29 is older than 2.0")


def described() -> DriverSpec:
    """Return the description in the vector."""
    return decode_driver(TEXT, driver=HERE, device=HERE)


def test_paths_are_the_hosts() -> None:
    """Of files, device files and hooks that run on the host; paths in the container stay."""
    edits = described().selected([GPU])
    hooks = {hook["args"][1]: hook["args"][2:] for hook in edits.hooks}

    assert "/run/nvidia/driver/usr/bin/nvidia-smi" == edits.mounts["/usr/bin/nvidia-smi"]["hostPath"]
    assert "/run/nvidia/driver/dev/nvidiactl" == edits.device_nodes["/dev/nvidiactl"]["hostPath"]
    assert ["--driver-root", "/run/nvidia/driver", "--gpu-id", GPU] == hooks["apply-cuda-memory-limits"]
    assert ["--folder", "/usr/lib/x86_64-linux-gnu"] == hooks["update-ldcache"]
    assert "/driver-root" not in json.dumps(cdi.spec("a-1", edits))


def test_device_files_outside_the_drivers_root_have_their_own_root() -> None:
    """A driver container may have no `/dev`; the plugin then sees its own."""
    text = TEXT.replace(b"/driver-root/dev", b"/dev")
    edits = decode_driver(text, driver=HERE, device=Root("/", "/host")).selected([GPU])

    assert "/host/dev/nvidia1" == edits.device_nodes["/dev/nvidia1"]["hostPath"]
    assert "/run/nvidia/driver/usr/bin/nvidia-smi" == edits.mounts["/usr/bin/nvidia-smi"]["hostPath"]


def test_our_edits_come_last() -> None:
    """A driver cannot replace the limits, the library or the preload file."""
    ours = cdi.grant_edits(a_grant(a_policy(list_strategies=("cdi-cri",))))
    theirs = decode_driver(
        json.dumps(
            {
                "cdiVersion": "0.6.0",
                "kind": "nvidia.com/gpu",
                "devices": [],
                "containerEdits": {
                    "env": ["CUDA_DEVICE_MEMORY_LIMIT_0=0", "OTHER=1"],
                    "mounts": [{"hostPath": "/driver-root/x", "containerPath": "/etc/ld.so.preload"}],
                },
            }
        ).encode(),
        driver=HERE,
        device=HERE,
    )
    found = cdi.spec("a-1", theirs.common + ours, theirs.version)
    [edits] = [device["containerEdits"] for device in found["devices"]]
    preloads = [mount["hostPath"] for mount in edits["mounts"] if mount["containerPath"] == "/etc/ld.so.preload"]

    assert "0.6.0" == found["cdiVersion"]
    assert {"CUDA_DEVICE_MEMORY_LIMIT_0=1000m", "OTHER=1", "NVIDIA_VISIBLE_DEVICES=void"} <= set(edits["env"])
    assert ["/usr/local/vgpu/ld.so.preload"] == preloads


def test_container_gets_only_its_devices() -> None:
    """A device that the description lacks is named."""
    spec = described() + DriverSpec(devices={"GPU-other": described().devices[GPU]})

    assert "/dev/nvidia1" in spec.selected([GPU]).device_nodes
    assert "/dev/nvidia1" not in spec.selected([]).device_nodes
    with pytest.raises(SpecError, match=f"device GPU-x is not in the description of the driver .{GPU}, GPU-other"):
        spec.selected([GPU, "GPU-x"])


def test_feature_is_for_every_container() -> None:
    """The generator describes it as the device `all`."""
    text = json.dumps(
        {
            "cdiVersion": "0.5.0",
            "devices": [{"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/gdrdrv"}]}}],
        }
    )
    spec = decode_driver(text.encode(), driver=HERE, device=HERE).for_all()

    assert ["/dev/gdrdrv"] == list((described() + spec).selected([]).device_nodes)[-1:]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not JSON"),
        ("[]", "no cdiVersion"),
        ('{"cdiVersion": 1}', "no cdiVersion"),
        ('{"cdiVersion": "0.5.0"}', "devices is not a list of objects with a name"),
        ('{"cdiVersion": "0.5.0", "devices": [{}]}', "devices is not a list of objects with a name"),
        (
            '{"cdiVersion": "0.5.0", "devices": [{"name": "a", "containerEdits": {"env": [1]}}]}',
            "device a.env: 1 is not",
        ),
        ('{"cdiVersion": "0.5.0", "devices": [], "containerEdits": {"env": 1}}', "containerEdits.env is not a list"),
    ],
)
def test_description_of_another_form_is_refused(text: str, problem: str) -> None:
    """With the place and the reason."""
    with pytest.raises(SpecError, match=problem):
        decode_driver(text.encode(), driver=HERE, device=HERE)


@pytest.mark.parametrize(
    ("configured", "mode", "problem", "expected"),
    [
        pytest.param(
            (), IDENTITY, None, "cdi-cri: containerd://2.1.8 has CDI, and the driver is described", id="works"
        ),
        pytest.param((), IDENTITY, "no driver", "envvar: no driver", id="does not work"),
        pytest.param(("envvar",), IDENTITY, None, "envvar: configured", id="another is configured"),
        pytest.param(("cdi-annotations",), IDENTITY, None, "cdi-annotations: configured", id="it is configured"),
        pytest.param(
            (),
            LOCK,
            None,
            "envvar: native CDI needs --allocation=identity, and allocations go by the lock: containerd 1.7.29 is "
            "older than 2.0",
            id="under the lock",
        ),
    ],
)
def test_native_cdi_is_the_default_where_it_works(
    configured: tuple[str, ...], mode: Mode, problem: str | None, expected: str
) -> None:
    """Elsewhere NVIDIA's runtime adds the driver, and the reason says why."""
    assert expected == str(choose_strategy(configured, mode, problem))


@pytest.mark.parametrize(("mode", "problem"), [(IDENTITY, "no driver"), (LOCK, None)])
def test_configured_native_cdi_is_never_replaced(mode: Mode, problem: str | None) -> None:
    """The operator gets the reason instead."""
    with pytest.raises(StrategyError, match=r"--device-list-strategy=cdi-cri: (no driver|native CDI needs)"):
        choose_strategy(("cdi-cri",), mode, problem)


def test_root_that_is_the_same_on_the_host_changes_nothing() -> None:
    """As for a plugin that runs outside a container."""
    same = decode_driver(TEXT, driver=Root("/", "/"), device=Root("/", "/"))

    assert "/driver-root/usr/bin/nvidia-smi" == same.common.mounts["/usr/bin/nvidia-smi"]["hostPath"]
