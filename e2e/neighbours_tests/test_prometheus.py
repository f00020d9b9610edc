"""
Prometheus scrapes a cluster, and its alerts and sums are true.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from controlplane.programs.build import made
from harness.client import asked_json
from harness.cluster import Cluster
from harness.manifests import SLEEP, a_pod
from neighbours.page import Neighbour
from neighbours.programs import ALERTMANAGER, ALERTMANAGER_VERSION, PROMETHEUS, PROMETHEUS_VERSION
from neighbours.prometheus import Monitoring, monitored
from testbed.driver.hardware import FakeDriver
from testbed.folders import short_folder
from testbed.waiting import eventually

NEIGHBOUR = Neighbour(
    (("Prometheus", PROMETHEUS_VERSION), ("Alertmanager", ALERTMANAGER_VERSION)),
    ("podMonitor.enabled", "alerts.enabled", "usageRules.enabled"),
)
pytestmark = [pytest.mark.embedded_only, pytest.mark.timeout(300)]

HELD = "node_namespace_device_type:hami_namespace_held_seconds:max"
OF_DEVICE = "node_device_uuid_device_type:hami_device_{}_seconds:max"
ROUNDING_SECONDS = 0.01


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def monitoring(shared_cluster: Cluster) -> AsyncIterator[Monitoring]:
    """Prometheus and Alertmanager beside the shared cluster."""
    programs = [await asyncio.to_thread(made, product, print) for product in (PROMETHEUS, ALERTMANAGER)]
    folder = short_folder()
    try:
        async with monitored(shared_cluster, folder, programs[0] / "prometheus", programs[1] / "alertmanager") as found:
            yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def test_every_service_is_scraped_under_the_labels_of_the_alerts(
    cluster: Cluster, monitoring: Monitoring
) -> None:
    """Each service is scraped, with its job, and on Nodes with its Node."""
    up = await monitoring.query("up == 1")

    nodes = {node.name for node in cluster.nodes}
    expected = {("hami-webhook", ""), ("hami-scheduler", "")} | {
        (job, node) for job in ("hami-device-plugin", "hami-monitor") for node in nodes
    }
    assert expected == {(labels["job"], labels.get("node", "")) for labels, _ in up}


async def test_measured_pod_keeps_its_name(cluster: Cluster, monitoring: Monitoring) -> None:
    """Metrics of a share name its own Pod and namespace, not the monitor's."""
    await cluster.create(a_pod("p", command=SLEEP, gpu=1, gpumem=3000))
    await cluster.pod_in_phase("p", "Running")

    async def is_there() -> bool:
        found = await monitoring.query(f'hami_share_held_seconds_total{{namespace="{cluster.namespace}"}}')
        return [labels["pod"] for labels, _ in found] == ["p"]

    await eventually(is_there, "Prometheus has the share of the Pod", 60)


async def test_recorded_device_time_is_what_the_command_prints(cluster: Cluster, monitoring: Monitoring) -> None:
    """The recording rules have the device-hours that `kubectl hami usage` prints."""
    await cluster.create(a_pod("p", command=SLEEP, gpu=1, gpumem=20480))
    await cluster.pod_in_phase("p", "Running")
    await asyncio.sleep(10)  # what the Pod holds for
    await cluster.delete_pod("p")

    async def hours_agree() -> bool:
        recorded = await monitoring.query(f'sum({HELD}{{namespace="{cluster.namespace}"}}) / 3600')
        printed = await asked_json(cluster, "usage", "-n", cluster.namespace)
        [row] = printed["clusters"][0]["usage"]
        return bool(recorded) and row["heldHours"] > 0 and abs(row["heldHours"] - recorded[0][1]) < 1e-6

    await eventually(hours_agree, "the recorded sum is the printed one", 90)


async def test_recorded_books_close(cluster: Cluster, monitoring: Monitoring) -> None:
    """In the recording rules, what a device offered is what was held of it and what was idle."""
    await cluster.create(a_pod("p", command=SLEEP, gpu=1, gpumem=20480))
    await cluster.pod_in_phase("p", "Running")

    async def is_held() -> bool:
        return any(seconds > 0 for _, seconds in await monitoring.query(OF_DEVICE.format("held")))

    await eventually(is_held, "held time is recorded", 60)
    gap = " - ".join(OF_DEVICE.format(what) for what in ("offered", "held", "idle"))
    gaps = await monitoring.query(gap)

    assert sum(len(node.gpus) for node in cluster.nodes) == len(gaps)
    assert max(abs(seconds) for _, seconds in gaps) < ROUNDING_SECONDS


async def test_service_that_is_down_fires_and_resolves(cluster: Cluster, monitoring: Monitoring) -> None:
    """`HamiServiceDown` reaches Alertmanager's receiver when the webhook is killed, and resolves when it is back."""
    await cluster.kill("webhook")
    await monitoring.until("firing", "HamiServiceDown", job="hami-webhook")

    await cluster.restart("webhook")
    await monitoring.until("resolved", "HamiServiceDown", job="hami-webhook")


async def test_node_without_a_plugin_fires_and_resolves(cluster: Cluster, monitoring: Monitoring) -> None:
    """`HamiNodeWithoutPlugin` fires on the Node whose device plugin is killed, and resolves when it is back."""
    [node, other] = [node.name for node in cluster.nodes]
    await cluster.kill(f"plugin-{node}")
    await monitoring.until("firing", "HamiNodeWithoutPlugin", node=node)

    await cluster.restart(f"plugin-{node}")
    await monitoring.until("resolved", "HamiNodeWithoutPlugin", node=node)
    assert not monitoring.statuses("HamiNodeWithoutPlugin", node=other)


async def test_lost_device_fires_and_resolves(cluster: Cluster, monitoring: Monitoring) -> None:
    """`HamiDeviceUnhealthy` fires on the Node that loses a device, and resolves when it is back."""
    node = cluster.nodes[0]
    driver = FakeDriver(cluster.driver_folder(node.name))
    driver.lose(node.gpus[0].uuid)
    await monitoring.until("firing", "HamiDeviceUnhealthy", node=node.name)

    driver.bring_back(node.gpus[0].uuid)
    await monitoring.until("resolved", "HamiDeviceUnhealthy", node=node.name)


async def test_healthy_cluster_has_no_alert(cluster: Cluster, monitoring: Monitoring) -> None:
    """No alert fires on a cluster without a cause, with every `for` shortened to a second."""
    await cluster.create(a_pod("p", command=SLEEP, gpu=1, gpumem=3000))
    await cluster.pod_in_phase("p", "Running")

    async def is_quiet() -> bool:
        return not await monitoring.query('ALERTS{alertstate="firing"}')

    await eventually(is_quiet, "no alert fires", 60)
