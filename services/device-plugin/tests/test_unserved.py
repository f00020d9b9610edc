"""
A container that runs with a grant and without its devices is found.
"""

import pytest
from device_plugin_builders import VENDOR, a_pod, entry

from hami_device_plugin.decide.allocate.pods import unserved
from hamicommon.pod.reading import Pod, read_pod

GRANT = {VENDOR.allocated_key: "GPU-a,NVIDIA,1000,10:;"}
RUNNING = {"name": "main", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}


def running(annotations: dict[str, str], phase: str = "Running", *, has_started: bool = True) -> Pod:
    """Return a Pod whose container runs."""
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    item = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": annotations},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", **limits}, {"name": "side"}]},
        "status": {"phase": phase, "containerStatuses": [RUNNING] if has_started else []},
    }
    return read_pod(item, (VENDOR,))


def test_container_that_nobody_gave_devices_is_found() -> None:
    """Neither has the kubelet recorded any, nor has the plugin prepared the Pod."""
    assert {"u.main": "Pod ns/p, container main"} == unserved({"u": running(GRANT)}, (), (), "n1", VENDOR)


@pytest.mark.parametrize(
    ("pod", "prepared"),
    [
        pytest.param(running(GRANT), {"u"}, id="the kubelet lost its record of a container that has devices"),
        pytest.param(running({}), set(), id="no grant"),
        pytest.param(running(GRANT, "Pending"), set(), id="still starting"),
        pytest.param(running(GRANT, "Succeeded"), set(), id="ended"),
        pytest.param(running(GRANT, has_started=False), set(), id="not started"),
        pytest.param(running({**GRANT, "hami.io/vgpu-node": "n2"}), set(), id="grant of another Node"),
    ],
)
def test_others_are_not(pod: Pod, prepared: set[str]) -> None:
    """Each has its devices, or needs none yet."""
    assert {} == unserved({"u": pod}, (), prepared, "n1", VENDOR)


def test_record_of_the_kubelet_is_enough() -> None:
    """Under the node lock no specification says so."""
    assert {} == unserved({"u": running(GRANT)}, (entry("u", "main", "GPU-a-0"),), (), "n1", VENDOR)
    assert {} == unserved({"u": a_pod(GRANT)}, (), (), "n1", VENDOR)
