"""
Use over time on the page of a Node: of the Node and of each device.
"""

import time
from datetime import timedelta

from kubectl_hami.page.prometheus import DEVICE_BUSY, DEVICE_MEMORY, PrometheusPast
from kubectl_hami.page.questions import Questions
from testbed.webpage import plain

from ..prometheus import Prometheus
from .page import Page
from .pictures import NOW, a_device, a_node, a_picture, a_share
from .test_prometheus import MIB, values

FIRST = "GPU-node-a-0"
OF_NODE = '[aria-label="use of the node over time"]'
PICTURE = a_picture(
    a_node(
        "node-a",
        a_device("node-a", 0, a_share("train"), usedMemoryMib=10240, usedCorePercent=30.0),
        a_device("node-a", 1, usedMemoryMib=None, usedCorePercent=None),
    )
)


def charts(page: Page, within: str) -> list[str]:
    """Return what the charts show, in words."""
    return [plain(chart.accessible_name) for chart in page.all(f"{within} .chart")]


def test_a_node_and_its_devices_have_curves_since_the_page_was_opened(page: Page) -> None:
    """Memory and compute, against what is granted; a device that nothing measures has none."""
    page.open(PICTURE, "#/node/node-a")

    page.eventually(lambda: "Use over time: since this page was opened, from " in page.text(OF_NODE))

    words = ["memory, 10.0 GiB at the end, 2.9 GiB granted", "compute, 30 % at the end, 25 % granted"]
    assert words == charts(page, f'[data-curves="{FIRST}"]')
    assert [words[0], "compute, 30 % at the end, 13 % granted"] == charts(page, OF_NODE)
    assert [] == charts(page, '[data-curves="GPU-node-a-1"]')


def test_curves_of_devices_come_from_prometheus_if_it_is_named(
    page: Page, questions: Questions, prometheus: Prometheus
) -> None:
    """They reach back before the page was opened, and that is said."""
    now = time.time()
    moments = [now - 3600, now - 60]
    prometheus.answers = {
        DEVICE_MEMORY: values(**{FIRST: [(when, 4096.0 * MIB) for when in moments]}),
        DEVICE_BUSY: values(**{FIRST: [(when, 50.0) for when in moments]}),
    }
    questions.past = PrometheusPast(prometheus.url)
    page.open(PICTURE, "#/node/node-a")

    page.eventually(lambda: "Use over time: from Prometheus, from " in page.text(OF_NODE))

    assert ["memory, 4.0 GiB at the end, 2.9 GiB granted", "compute, 50 % at the end, 25 % granted"] == charts(
        page, f'[data-curves="{FIRST}"]'
    )


def test_a_prometheus_that_does_not_answer_is_said_and_the_devices_stay(page: Page, questions: Questions) -> None:
    """Port 1 of loopback has no server."""
    page.expect_error("503")
    questions.past = PrometheusPast("http://127.0.0.1:1")
    page.open(PICTURE, "#/node/node-a")

    page.eventually(lambda: "Prometheus at http://127.0.0.1:1 does not answer" in page.text(f"{OF_NODE} .problem"))
    assert 2 == len(page.all(".device-details"))


def test_a_node_that_nothing_measures_says_so(page: Page) -> None:
    """An empty chart would read as no use."""
    page.open(a_picture(a_node("node-a", a_device("node-a", 0, usedMemoryMib=None, usedCorePercent=None))))
    page.go("/node/node-a")

    page.eventually(lambda: "No use was measured yet." == page.text(OF_NODE))


def test_a_device_whose_curve_grows_keeps_the_rest_of_its_section(page: Page) -> None:
    """A person who selects its UUID keeps the selection."""
    page.open(PICTURE, "#/node/node-a")
    page.eventually(lambda: charts(page, f'[data-curves="{FIRST}"]'))
    page.run("document.querySelectorAll('.device-details > *').forEach((element) => (element.isOld = true))")
    before = page.text(OF_NODE)

    time.sleep(1)  # the page writes times to the second
    page.told.picture = {**PICTURE, "takenAt": (NOW + timedelta(seconds=3)).isoformat()}
    page.eventually(lambda: before != page.text(OF_NODE))

    assert page.run("return [...document.querySelectorAll('.device-details > *')].every((element) => element.isOld)")
