"""
Any service can be replaced at any time, by a newer or an older version, while Pods come and go.
"""

import random

import pytest

from harness.load import coming_and_going
from harness.real import PREVIOUS_IMAGES, PREVIOUS_TAG, RealCluster
from harness.residents import settle

pytestmark = [pytest.mark.real_only, pytest.mark.timeout(900)]

SERVICES = ("webhook", "scheduler", "devicePlugin", "monitor")
WORKLOADS = ("deployment/hami-webhook", "deployment/hami-scheduler", "ds/hami-device-plugin", "ds/hami-monitor")


async def test_rolling_restart_of_every_service_loses_no_pod_and_touches_none(cluster: RealCluster) -> None:
    """The services restart one after the other, while Pods come and go."""
    residents = await settle(cluster)

    async with coming_and_going(cluster) as ran:
        for workload in WORKLOADS:
            await cluster.roll(workload)

    assert len(ran) > len(WORKLOADS)
    await residents.check_untouched(cluster)


@pytest.mark.skipif(not any(PREVIOUS_IMAGES.glob("*.tar")), reason="no images of the previous commit were built")
@pytest.mark.parametrize("seed", [1])
async def test_services_are_replaced_one_by_one_in_any_order_and_back(cluster: RealCluster, seed: int) -> None:
    """From the images of the previous commit to those of this one and back, each time in another order."""
    choice = random.Random(seed)
    tags = dict.fromkeys(SERVICES, PREVIOUS_TAG)
    await cluster.deploy(values=image_tags(tags))
    residents = await settle(cluster)
    for tag in ("", PREVIOUS_TAG):
        async with coming_and_going(cluster) as ran:
            for service in choice.sample(SERVICES, len(SERVICES)):
                tags[service] = tag
                await cluster.deploy(values=image_tags(tags))
        assert len(ran) > len(SERVICES)
        await residents.check_untouched(cluster)


def image_tags(tags: dict[str, str]) -> dict[str, str]:
    """Return the chart's values for the image tag of each service. An empty tag means the chart's default."""
    return {f"{service}.image.tag": tag for service, tag in tags.items()}
