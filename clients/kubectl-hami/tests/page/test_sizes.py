"""
The page on a phone, on a desk and on a wall; and what is broken among many devices.
"""

import pytest

from testbed import browser

from .page import Page, Told
from .pictures import a_cluster, a_device, a_node, a_picture, a_share, a_status, a_waiting_pod
from .test_commands import CHECKS, a_comparison, a_report

PHONE, DESK, WALL = (400, 860), (1280, 800), (2560, 1440)
LONG = "a-name-as-long-as-kubernetes-lets-people-write-it-0123456789abcdef"
STATES = (
    "/devices",
    "/pods",
    "/node/node-a",
    f"/pod/team-a/{LONG}",
    "/grants",
    "/usage/pods",
    "/doctor",
    "/simulate",
)


@pytest.fixture
def long(told: Told) -> Told:
    """A cluster in which every name is long."""
    cause = f"container {LONG}: ErrImagePull: {LONG * 4}"
    told.picture = a_picture(
        a_node("node-a", a_device("node-a", 0, a_share(LONG, "team-a", container=LONG), isHealthy=False)),
        a_node(LONG, a_device(LONG, 0), isReady=False, isMeasured=False, isCordoned=True),
        waiting=(a_waiting_pod(f"{LONG}-1", LONG, asks=f"{LONG}.io/{LONG} 1", cause=LONG * 3),),
        pods=[a_status(LONG, "team-a", owner=f"Deployment/{LONG}", phase="Pending", cause=cause)],
        problems=[LONG * 4],
        cluster=LONG,
    )
    told.checks = [{**check, "found": LONG * 3, "fix": LONG * 3} for check in CHECKS]
    told.grants = [a_comparison(LONG, "broken", LONG, container=LONG)]
    told.usages["pods", ""] = [{"namespace": LONG, "pod": LONG, "model": LONG, "heldHours": 1234.5, "usedHours": None}]
    told.reports = [a_report(f"team-a/{LONG}", node=LONG)]
    return told


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("size", [PHONE, DESK, WALL], ids=["phone", "desk", "wall"])
def test_nothing_leaves_the_window_sideways(page: Page, long: Told, size: tuple[int, int], state: str) -> None:
    """Whatever is written, the page is as wide as the window; on a phone no table must be pushed sideways either."""
    browser.resize(page.driver, *size)
    page.open(long.picture, f"#{state}")
    page.eventually(lambda: "Asking" not in page.text("#view"))
    if state == "/simulate":
        page.find("[name='manifest']").send_keys("kind: Pod")
        page.find(".simulate button").click()
        page.eventually(lambda: page.all("[aria-label^='simulation']"))

    wider = page.run("return document.documentElement.scrollWidth - innerWidth")
    pushed = page.run(
        "return [...document.querySelectorAll('#view, #view section, #view table, #waiting, #top, nav')]"
        ".filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.outerHTML.slice(0, 80))"
    )

    assert 0 >= wider
    assert [] == (pushed if size == PHONE else [])


@pytest.mark.parametrize("devices", [16, 800])
def test_on_a_phone_bars_and_waiting_pods_come_first(page: Page, devices: int) -> None:
    """Both are there without scrolling, above all words about owners."""
    browser.resize(page.driver, *PHONE)
    page.open(a_cluster(devices))

    assert page.in_sight("#waiting li")[0]
    assert 4 <= sum(page.in_sight(".bar.memory"))
    assert page.find("#waiting").location["y"] < page.find(".bar.memory").location["y"]


def test_on_a_phone_a_row_of_a_table_is_a_card_with_names(page: Page) -> None:
    """A column's name stands before its value, because no heading is above it."""
    browser.resize(page.driver, *PHONE)
    page.open(a_cluster(16), "#/pods")

    names = page.run(
        "return [...document.querySelector('tbody tr').children]"
        ".map((cell) => getComputedStyle(cell, '::before').content.replaceAll('\"', ''))"
    )

    assert ["Namespace", "Pod", "Owner", "Phase", "Age", "Node"] == names[:6]
    page.find("th a[data-focus='sort age']").click()
    page.eventually(lambda: page.state == "/pods?sort=-age")


@pytest.mark.parametrize("devices", [4, 16, 80, 800])
def test_on_a_wall_the_bars_fill_the_width(page: Page, devices: int) -> None:
    """From the left edge to the Pods that wait."""
    browser.resize(page.driver, *WALL)
    page.open(a_cluster(devices))

    edges = page.run("return [...document.querySelectorAll('.bar.memory')].map((e) => e.getBoundingClientRect().right)")

    assert max(edges) > page.find("#waiting").location["x"] - 60
    assert all(page.in_sight(".bar.memory")[: min(devices, 600)])


def test_an_unhealthy_device_is_seen_among_eight_hundred(page: Page) -> None:
    """A count at the top, its node first, a frame and stripes in the colour of what is bad: nothing must be read."""
    picture = a_cluster(800)
    sick = [(node["name"], d["id"]) for node in picture["nodes"] for d in node["devices"] if not d["isHealthy"]]
    page.open(picture)

    bars = page.run(
        """
        return [...document.querySelectorAll('.device')].map((device) => {
            const style = getComputedStyle(device.querySelector('.bar.memory'));
            return [device.dataset.device, style.outlineStyle, style.outlineColor, style.backgroundImage];
        })
        """
    )
    framed = [name for name, outline, _, stripes in bars if outline == "solid" and "repeating-linear" in stripes]

    assert {name for _, name in sick} == set(framed)
    assert [f"▲ {len(sick)} devices unhealthy"] == page.texts("#summary .figure")[:1]
    nodes = {name for name, _ in sick}
    assert nodes == set(page.texts(".node h2")[: len(nodes)])
    assert all(page.in_sight(".is-unhealthy .bar.memory"))
    assert "polygon" in page.find(".node .badge.is-bad").value_of_css_property("clip-path")


def test_a_person_may_have_the_nodes_by_name(page: Page) -> None:
    """Then a broken one stays where it is."""
    page.open(a_picture(a_node("a", a_device("a", 0)), a_node("b", a_device("b", 0, isHealthy=False))))
    assert ["b", "a"] == page.texts(".node h2")

    page.go("/devices?sort=name")

    page.eventually(lambda: ["a", "b"] == page.texts(".node h2"))
