"""
What a person sees of the devices: bars cut into shares, granted outside, used inside.
"""

import pytest

from .page import Page
from .pictures import a_cluster, a_device, a_node, a_picture, a_share

TWO_NODES = a_picture(
    a_node(
        "node-a",
        a_device(
            "node-a", 0, a_share("share-1"), a_share("share-2", usedMemoryMib=1500), a_share("idle", usedMemoryMib=0)
        ),
        a_device("node-a", 1),
    ),
    a_node("node-b", a_device("node-b", 0, a_share("half", memoryMib=20480, corePercent=0)), isReady=False),
)
GAP_PX = 2.5
"""Between two shares."""


def test_each_device_is_a_bar_cut_into_shares_with_the_owners_names(page: Page) -> None:
    """From left to right in a steady order, and each as wide as its part of the device's memory."""
    page.open(TWO_NODES)

    bar = page.find('[data-device="GPU-node-a-0"] .bar.memory')
    boxes = page.all('[data-device="GPU-node-a-0"] .bar.memory .share')

    assert ["idle", "share-1", "share-2"] == [box.text for box in boxes]
    assert all(abs(box.size["width"] - bar.size["width"] * 3000 / 40960) <= GAP_PX for box in boxes)
    assert [] == page.all('[data-device="GPU-node-a-1"] .bar.memory .share')


def test_inside_a_share_its_use_is_filled(page: Page) -> None:
    """2000 of 3000 MiB fill two thirds of the box, no use fills nothing."""
    page.open(TWO_NODES)

    filled = {
        box.text: page.run("return parseFloat(getComputedStyle(arguments[0], '::after').width)", box)
        / box.size["width"]
        for box in page.all('[data-device="GPU-node-a-0"] .bar.memory .share')
    }

    assert pytest.approx({"idle": 0, "share-1": 2 / 3, "share-2": 0.5}, abs=0.03) == filled


def test_a_device_says_in_words_what_its_bar_shows(page: Page) -> None:
    """A person who hears the page gets the same numbers."""
    page.open(TWO_NODES)

    said = page.find('[data-device="GPU-node-a-0"] .device-name').accessible_name

    assert said.startswith("device node-a 0, NVIDIA A100-SXM4-40GB, 8.8 of 40.0\N{NO-BREAK SPACE}GiB granted")
    assert "default/share-1 2.9\N{NO-BREAK SPACE}GiB" in said


def test_the_whole_cluster_is_one_line_of_sums(page: Page) -> None:
    """Devices, their memory and their compute: what is granted and what is used; what is free."""
    page.open(TWO_NODES)

    assert [
        "3 devices on 2 nodes",
        "24 % of 120.0 GiB memory granted",
        "19 % of that used",
        "25 % of the compute granted",
        "35 % of the compute busy",
        "1 device free",
    ] == page.texts("#summary .figure")


def test_a_cluster_without_devices_says_what_to_do_next(page: Page) -> None:
    """Which label starts the device plugin, and who says what is missing."""
    page.open(a_picture())

    steps = page.texts("#view .nothing li")

    assert ["kubectl label node NODE gpu=on", "devicePlugin.nodeSelector", "kubectl hami doctor"] == page.texts(
        "#view .nothing code"
    )
    assert steps[0].startswith("Label a node that has devices")
    assert ["0 devices on 0 nodes"] == page.texts("#summary .figure")
    page.find("#view .nothing a").click()
    page.eventually(lambda: page.state == "/doctor")


@pytest.mark.parametrize(
    ("mib", "words"),
    [
        (0, "0.0 of 40.0 GiB"),
        (1, "0.01 of 40.0 GiB"),
        (400, "0.39 of 40.0 GiB"),
        (3000, "2.9 of 40.0 GiB"),
        (1_307_853, "1 277 of 40.0 GiB"),
    ],
)
def test_memory_is_in_gib_of_few_digits(page: Page, mib: int, words: str) -> None:
    """What is not nothing never reads as nothing."""
    page.open(a_picture(a_node("node-a", a_device("node-a", 0, grantedMemoryMib=mib))))

    assert words == page.text(".device-amount")


@pytest.mark.parametrize("state", ["/devices", "/pods", "/node/node-a", "/pod/default/half", "/grants", "/usage/pods"])
def test_no_amount_of_memory_is_in_another_unit(page: Page, state: str) -> None:
    """Only what the page quotes has MiB."""
    page.open(TWO_NODES, f"#{state}")
    page.eventually(lambda: "Asking" not in page.text("#view"))

    assert not [unit for unit in ("MiB", "TiB", " MB", " GB") if unit in page.text("body")]


def test_a_node_that_is_not_ready_and_a_sick_device_stand_out(page: Page) -> None:
    """By a word, not by colour alone."""
    sick = a_device("node-c", 0, isHealthy=False)
    page.open(a_picture(*TWO_NODES["nodes"], a_node("node-c", sick, isMeasured=False)))

    assert "not ready" in page.text('[aria-label="node node-b"] > header')
    assert "use unknown" in page.text('[aria-label="node node-c"] > header')
    assert "unhealthy" in page.text('[data-device="GPU-node-c-0"] header')


def test_an_init_container_that_ran_before_is_not_drawn_beside_the_others(page: Page) -> None:
    """Its share and the app's take the same memory, one after the other."""
    before = a_share("train", container="warm-up", kind="init", memoryMib=8000)
    page.open(a_picture(a_node("node-a", a_device("node-a", 0, before, a_share("train"), grantedMemoryMib=8000))))

    boxes = page.all(".bar.memory .share")

    assert ["default/train/main"] == [box.get_attribute("data-share") for box in boxes]
    assert "7.8 of 40.0 GiB" == page.text(".device-amount")


def test_a_device_above_its_memory_stays_in_its_bar(page: Page) -> None:
    """Grants that exceed what is offered shrink with the bar."""
    shares = [a_share(f"share-{number}", memoryMib=20480) for number in range(3)]
    page.open(a_picture(a_node("node-a", a_device("node-a", 0, *shares))))

    bar = page.find(".bar.memory")
    boxes = page.all(".bar.memory .share")

    assert sum(box.size["width"] for box in boxes) <= bar.size["width"]
    assert "60.0 of 40.0 GiB" == page.text(".device-amount")


def test_where_one_namespace_has_all_colours_tell_pods_apart_else_namespaces(page: Page) -> None:
    """The legend says whose colour is whose."""
    page.open(TWO_NODES)
    assert ["half 20.0 GiB", "idle 2.9 GiB", "share-1 2.9 GiB", "share-2 2.9 GiB"] == [
        text.replace("\n", " ") for text in page.texts(".owner")
    ]

    other = a_node("node-c", a_device("node-c", 0, a_share("train", "team-a")))
    page.open(a_picture(*TWO_NODES["nodes"], other))

    assert ["default 28.8 GiB", "team-a 2.9 GiB"] == [text.replace("\n", " ") for text in page.texts(".owner")]


@pytest.mark.parametrize("devices", [8, 80, 800])
def test_any_number_of_devices_stays_readable(page: Page, devices: int) -> None:
    """Nothing leaves the window sideways, no node's name is cut off, and each bar can be seen and clicked."""
    page.open(a_cluster(devices))

    widest = page.run("return document.documentElement.scrollWidth - innerWidth")
    cut = page.run(
        "return [...document.querySelectorAll('.node h2')].filter((e) => e.scrollWidth > e.clientWidth).length"
    )
    bars = page.run("return [...document.querySelectorAll('.bar.memory')].map((e) => [e.offsetWidth, e.offsetHeight])")

    assert (0, 0, devices) == (max(0, widest), cut, len(bars))
    assert min(width for width, _ in bars) >= 100
    assert min(height for _, height in bars) >= 8


def test_eight_hundred_devices_are_drawn_again_only_where_something_changed(page: Page) -> None:
    """A new picture with one other share redraws one node's box and leaves the others alone."""
    picture = a_cluster(800)
    page.open(picture)
    page.run("document.querySelectorAll('.node').forEach((node) => (node.isOld = true))")

    device = picture["nodes"][50]["devices"][0]
    device["shares"] = [a_share("newcomer", "vision")]
    page.eventually(lambda: page.all('[data-share="vision/newcomer/main"]'))

    fresh = page.run(
        "return [...document.querySelectorAll('.node')].filter((node) => !node.isOld).map((node) => node.ariaLabel)"
    )
    assert [f"node {picture['nodes'][50]['name']}"] == fresh
    assert 800 == len(page.all(".device"))


def test_the_box_beside_a_small_bar_has_what_the_bar_has_no_space_for(page: Page) -> None:
    """Owner, used and granted of each share, for the pointer and for the focus."""
    picture = a_cluster(800)
    picture["nodes"][0]["devices"][0]["shares"] = [a_share("train", "team-a")]
    page.open(picture, "#/devices?sort=name")

    page.press("/", "\ue015")  # into the search, and down into the devices

    assert "team-a/train 2.0 of 2.9 GiB 25 %" in page.text("#tip").replace("\n", " ")


@pytest.mark.parametrize(("limit_mib", "words"), [(3000, ""), (None, ""), (4000, "limit 3.9 GiB"), (0, "no limit")])
def test_a_limit_that_is_not_the_grant_stands_out(page: Page, limit_mib: int | None, words: str) -> None:
    """The container may use something else than it was granted."""
    share = a_share("train", limitMemoryMib=limit_mib)
    page.open(a_picture(a_node("node-a", a_device("node-a", 0, share))), "#/node/node-a")

    assert words == page.text("tbody td:last-child")


@pytest.mark.parametrize("place", ["node/node-a", "pod/default/train"])
def test_a_share_names_the_claim_that_gives_it(page: Page, place: str) -> None:
    """`kubectl describe resourceclaim` says the rest."""
    share = a_share("train", claim="train-gpu-x7k2p")
    page.open(a_picture(a_node("node-a", a_device("node-a", 0, share))), f"#/{place}")

    assert "ResourceClaim train-gpu-x7k2p" == page.text("tbody td:last-child")


def test_a_share_that_waited_since_the_last_picture_is_throttled(page: Page) -> None:
    """The counter of the time spent waiting has grown."""
    share = a_share("train", throttledSeconds=4.0)
    page.open(a_picture(a_node("node-a", a_device("node-a", 0, share))), "#/pod/default/train")
    assert "throttled" not in page.text("#view")

    share["throttledSeconds"] = 5.5

    page.eventually(lambda: "throttled" in page.text("#view"))
