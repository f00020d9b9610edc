"""
`kubectl hami ui` shows a person who has what, who waits, and why.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from selenium.webdriver.chrome.webdriver import WebDriver

from harness.client import PROGRAM, asked, until_explained
from harness.cluster import ROOT, Cluster
from testbed import browser
from testbed.waiting import eventually
from testbed.webpage import WebPage

pytestmark = pytest.mark.embedded_only

EXAMPLES = ROOT / "examples/share"
RUNNING = ("share-a-gpu/pods.yaml", "memory-percentage/pod.yaml", "two-devices/pod.yaml", "many-containers/pod.yaml")
TOO_LARGE = (EXAMPLES / "waits-for-room/large.yaml").read_text().replace("30000", "45000")


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    """A browser. Tests are skipped where there is none."""
    if lacking := browser.missing():
        pytest.skip(lacking)
    with browser.running(tmp_path_factory.mktemp("browser"), height=560) as started:
        yield started


@asynccontextmanager
async def opened(driver: WebDriver, *options: str) -> AsyncIterator[WebPage]:
    """Open the page of `kubectl hami ui` with *options* in a browser."""
    process = await asyncio.create_subprocess_exec(
        *(str(PROGRAM), "ui", "--port=0", *options), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        address = (await process.stdout.readline()).decode().strip()
        await asyncio.to_thread(driver.get, address)
        yield WebPage(driver)
    finally:
        process.terminate()
        await process.wait()


@pytest_asyncio.fixture(loop_scope="session")
async def page(cluster: Cluster, driver: WebDriver) -> AsyncIterator[WebPage]:
    """The page of *cluster*, open in a browser, with Pods that run and one that waits."""
    for manifest in RUNNING:
        for pod in await cluster.apply(EXAMPLES / manifest):
            await cluster.pod_in_phase(pod["metadata"]["name"], "Running")
    await cluster.apply(TOO_LARGE)
    async with opened(driver, f"--kubeconfig={cluster.kubeconfig}") as shown:
        yield shown


async def seen(page: WebPage, text: str, within: str = "body") -> None:
    """Wait until the page shows *text*."""

    async def probe() -> bool:
        found: bool = await asyncio.to_thread(lambda: text in page.text(within))
        return found

    await eventually(probe, f"the page shows {text!r} in {within}", 30)


async def test_a_person_sees_who_has_what_who_waits_and_why(
    page: WebPage, cluster: Cluster, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Each device with the names of its owners, the Pod that waits with its cause, and what would let it fit."""
    pictures = request.config.getoption("--pictures") or tmp_path
    owners = {"share-1", "share-2", "share-3", "half-of-one", "two-devices", "many-containers"}

    await seen(page, "45000 MiB", "#waiting")
    shown = await eventually_measured(page, cluster.namespace)
    assert owners <= shown
    assert "4 devices on 2 nodes" in page.text("#summary")
    assert "2 lack 45000 MiB on any NVIDIA device" in page.text("#waiting")
    page.photograph(pictures / "page.webp")

    page.go(f"/pod/{cluster.namespace}/large")
    await seen(page, "It would fit", "#view")
    assert "with nvidia.com/gpumem" in page.text(".changes")
    assert {"node-a", "node-b"} == {text.split()[0] for text in page.texts(".reasons li")}
    await seen(page, "FilteringFailed", '[aria-label="Events"]')
    page.photograph(pictures / "page-pod.webp")

    page.go(f"/pod/{cluster.namespace}/share-1")
    await seen(page, "is bound to node", "#view")
    row = page.texts('[aria-label="shares"] tbody td')
    assert ("main", "2.9", "25 %") == (row[0], row[3], row[6])
    assert page.find('[aria-label="use over time"] .chart').accessible_name.endswith("2.9\N{NO-BREAK SPACE}GiB granted")


async def test_the_page_of_an_archive_shows_what_the_cluster_showed(
    cluster: Cluster, driver: WebDriver, tmp_path: Path
) -> None:
    """Devices, the Pod that waits, its explanation and its Events, from the file alone."""
    await cluster.apply(TOO_LARGE)
    await until_explained(cluster, "large")
    file = tmp_path / "bundle.tar.gz"
    answer = await asked(cluster, "bundle", "-f", str(file))
    assert answer.code == 0

    async with opened(driver, f"--from={file}") as page:
        await seen(page, "4 devices on 2 nodes", "#summary")
        page.go(f"/pod/{cluster.namespace}/large")
        await seen(page, "2 lack 45000 MiB on any NVIDIA device", '[aria-label="explanation"]')
        await seen(page, "FilteringFailed", '[aria-label="Events"]')


async def eventually_measured(page: WebPage, namespace: str) -> set[str]:
    """Wait until the use of every share of *namespace* is drawn, and return the Pods that have shares."""

    def shares() -> list[tuple[str, float]]:
        script = """
            return [...document.querySelectorAll(`.bar.memory .share[data-share^="${arguments[0]}/"]`)]
                .map((share) => [share.dataset.share.split("/")[1], Number(share.style.getPropertyValue("--used"))])
        """
        found: list[tuple[str, float]] = page.run(script, namespace)
        return found

    async def probe() -> set[str]:
        found = await asyncio.to_thread(shares)
        return {pod for pod, _ in found} if found and all(used > 0 for _, used in found) else set()

    return await eventually(probe, "the use of every share is drawn", 30)
