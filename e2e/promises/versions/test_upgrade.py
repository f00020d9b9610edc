"""
Any service can be replaced at any time, by a newer or an older version, while Pods come and go.
"""

import json
import random
from pathlib import Path

import pytest

from harness.clusters.real import RELEASED, RealCluster
from harness.clusters.release import CHART
from harness.documents.reader import Reader
from harness.load import coming_and_going
from harness.residents import settle

pytestmark = [pytest.mark.real_only, pytest.mark.timeout(900)]

SERVICES = {"webhook": "webhook", "scheduler": "scheduler", "devicePlugin": "device-plugin", "monitor": "monitor"}
"""The key of each service in the chart, and its name."""
RELEASED_CHART = RELEASED / "chart"
WORKLOADS = ("deployment/hami-webhook", "deployment/hami-scheduler", "ds/hami-device-plugin", "ds/hami-monitor")


async def test_rolling_restart_of_every_service_loses_no_pod_and_touches_none(cluster: RealCluster) -> None:
    """The services restart one after the other, while Pods come and go."""
    residents = await settle(cluster)

    async with coming_and_going(cluster) as ran:
        for workload in WORKLOADS:
            await cluster.roll(workload)

    assert len(ran) > len(WORKLOADS)
    await residents.check_untouched(cluster)


has_release = pytest.mark.skipif(not RELEASED_CHART.exists(), reason="no release was built; tools/released.py says why")


@has_release
async def test_release_is_upgraded_to_this_tree_and_rolled_back(cluster: RealCluster, tmp_path: Path) -> None:
    """The commands of the page, from the released chart and images to those of this tree, while Pods come and go."""
    await cluster.deploy(chart=RELEASED_CHART)
    residents = await settle(cluster)
    page = Reader(cluster, "docs/releases.md", tmp_path, CHART=str(CHART))

    async with coming_and_going(cluster) as ran:
        for step in ("upgrade", "rollback", "upgrade"):
            await page.does(step)
            cluster.release.changed()
            await cluster.replaced()

    assert len(ran) > 1
    await residents.check_untouched(cluster)


@has_release
@pytest.mark.parametrize("seed", [1])
async def test_services_are_replaced_one_by_one_in_any_order_and_back(cluster: RealCluster, seed: int) -> None:
    """From the images of the newest release to those of this tree and back, each time in another order."""
    choice = random.Random(seed)
    released = {key: release_tag(name) for key, name in SERVICES.items()}
    tags = dict(released)
    await cluster.deploy(values=image_tags(tags))
    residents = await settle(cluster)
    for wanted in (dict.fromkeys(SERVICES, ""), released):
        async with coming_and_going(cluster) as ran:
            for service in choice.sample(list(SERVICES), len(SERVICES)):
                tags[service] = wanted[service]
                await cluster.deploy(values=image_tags(tags))
        assert len(ran) > len(SERVICES)
        await residents.check_untouched(cluster)


def release_tag(name: str) -> str:
    """Return the tag of the newest release's image of the service *name*."""
    reference = json.loads((RELEASED / f"{name}.json").read_text())["reference"]
    return str(reference).rpartition(":")[2]


def image_tags(tags: dict[str, str]) -> dict[str, str]:
    """Return the chart's values for the image tag of each service. An empty tag means the chart's default."""
    return {f"{service}.image.tag": tag for service, tag in tags.items()}
