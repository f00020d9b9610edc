"""
What a container gets on each kind of node, by NVIDIA's own software, without the project's services.

The device plugin has to work on all of them. So these tests say what each kind does with NVIDIA_VISIBLE_DEVICES.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from controlplane import nvidia
from controlplane.cluster import DRIVER, ControlPlane
from controlplane.machines.node import Node
from controlplane_tests.conftest import PROBE_IMAGE, until
from testbed.driver.hardware import FakeNode

pytestmark = pytest.mark.timeout(300)
GPUS = FakeNode.of("kinds", "Tesla T4", 16384, 2).gpus
LIBRARIES = f"/usr/lib/{os.uname().machine}-linux-gnu"
BY_DEFAULT = [nvidia.LEGACY, nvidia.JIT_CDI, nvidia.HOST_SPEC]
"""The kinds whose default runtime adds devices."""


class Kinds:
    """One node of each kind, added when it is first asked for."""

    def __init__(self, cluster: ControlPlane) -> None:
        self.cluster = cluster
        self.nodes: dict[str, Node] = {}
        self._pods = 0

    def node(self, kind: nvidia.NodeKind) -> Node:
        """Return the node of *kind*."""
        if kind.name not in self.nodes:
            self.nodes[kind.name] = self.cluster.add_node(FakeNode(kind.name, GPUS, kind.name))
        return self.nodes[kind.name]

    def start(self, kind: nvidia.NodeKind, devices: str, *arguments: str, runtime: str = "") -> str:
        """Create a Pod that asks for *devices* and runs the probe with *arguments*, and return its name."""
        self._pods += 1
        name = f"{kind.name}-{self._pods}"
        wanted = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": devices}]
        spec = {
            "nodeName": self.node(kind).name,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": PROBE_IMAGE, "args": list(arguments), "env": wanted}],
            **({"runtimeClassName": runtime} if runtime else {}),
        }
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.cluster.kubectl("create", "-f", "-", content=yaml.safe_dump(manifest))
        return name

    def output(self, name: str) -> list[str]:
        """Wait until the Pod *name* has ended well, and return its lines."""

        def has_ended() -> bool:
            found = json.loads(self.cluster.kubectl("get", "pod", name, "-o", "json"))
            return bool(found["status"]["phase"] == "Succeeded")

        until(has_ended, f"Pod {name} has ended")
        return self.cluster.kubectl("logs", name).splitlines()

    def devices(self, name: str) -> set[str]:
        """Return the device files of GPUs that the Pod *name* has listed."""
        return {path for path in self.output(name) if path.startswith("/dev/nvidia") and path[-1].isdigit()}


@pytest.fixture(scope="module")
def kinds(cluster: ControlPlane) -> Iterator[Kinds]:
    """Yield nodes of every kind. They are removed afterwards."""
    kinds = Kinds(cluster)
    yield kinds
    for node in kinds.nodes.values():
        cluster.remove_node(node.name)


@pytest.mark.parametrize("kind", BY_DEFAULT, ids=lambda kind: kind.name)
def test_default_runtime_gives_the_driver(kinds: Kinds, kind: nvidia.NodeKind) -> None:
    """The libraries have the driver's version in their names, as in NVIDIA's packages."""
    names = {Path(path).name for path in kinds.output(kinds.start(kind, "all", "list", LIBRARIES))}

    version = nvidia.driver_version(DRIVER, kinds.node(kind).path(nvidia.HARDWARE))
    assert {f"libcuda.so.{version}", f"libnvidia-ml.so.{version}"} <= names
    assert {"libcuda.so.1", "libnvidia-ml.so.1"} <= names


@pytest.mark.parametrize("kind", [nvidia.JIT_CDI, nvidia.HOST_SPEC], ids=lambda kind: kind.name)
def test_runtime_with_cdi_gives_the_named_device_and_hides_its_name(kinds: Kinds, kind: nvidia.NodeKind) -> None:
    """It has only that device's file. NVIDIA_VISIBLE_DEVICES is void, so a program cannot read the order from it."""
    listed = kinds.devices(kinds.start(kind, GPUS[1].uuid, "list", "/dev"))
    environment = kinds.output(kinds.start(kind, GPUS[1].uuid, "environment"))

    assert {"/dev/nvidia1"} == listed
    assert "NVIDIA_VISIBLE_DEVICES=void" in environment


def test_operator_refuses_a_device_by_its_uuid(kinds: Kinds) -> None:
    """The spec of its runtime has only the device `all`. containerd shows the reason in an Event."""
    name = kinds.start(nvidia.OPERATOR, GPUS[0].uuid, "list", "/dev", runtime=nvidia.RUNTIME)

    def refused() -> bool:
        events = kinds.cluster.kubectl("get", "events", f"--field-selector=involvedObject.name={name}", "-o", "json")
        wanted = f"unresolvable CDI devices management.nvidia.com/gpu={GPUS[0].uuid}"
        return any(wanted in event["message"] for event in json.loads(events)["items"])

    until(refused, f"an Event says why {name} does not start")


def test_operator_gives_all_devices_by_its_runtime_class(kinds: Kinds) -> None:
    """Its own programs use it so."""
    name = kinds.start(nvidia.OPERATOR, "all", "list", "/dev", LIBRARIES, runtime=nvidia.RUNTIME)

    assert {"/dev/nvidia0", "/dev/nvidia1"} == kinds.devices(name)
    assert f"{LIBRARIES}/libcuda.so.1" in kinds.output(name)


@pytest.mark.parametrize("kind", [nvidia.PLAIN, nvidia.OPERATOR], ids=lambda kind: kind.name)
def test_plain_runtime_ignores_the_variable(kinds: Kinds, kind: nvidia.NodeKind) -> None:
    """The container starts, without a device and without the driver."""
    assert [] == [
        path for path in kinds.output(kinds.start(kind, "all", "list", "/dev", LIBRARIES)) if "nvidia" in path
    ]


@pytest.mark.parametrize("kind", nvidia.KINDS.values(), ids=lambda kind: kind.name)
def test_every_container_can_reach_the_hardware(kinds: Kinds, kind: nvidia.NodeKind) -> None:
    """Its place is in the environment, also without a device, because the fake driver has no kernel module."""
    assert f"FAKE_DRIVER_DIR={nvidia.HARDWARE}" in kinds.output(kinds.start(kind, "void", "environment"))
    assert kinds.node(kind).path(f"{nvidia.HARDWARE}/devices.csv").exists()
