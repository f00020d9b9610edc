"""
Who waits and why, the pages of Pods and nodes, search, links, and where the page gets no answer.
"""

from datetime import timedelta
from typing import Any

import pytest

from testbed.webpage import plain

from .page import Page, Told
from .pictures import NOW, Json, a_cluster, a_device, a_node, a_picture, a_share, a_status, a_waiting_pod

CAUSE = "0 of 2 nodes: 2 lack 45000 MiB on any NVIDIA device (best has 40960)"
PICTURE = a_picture(
    a_node("node-a", a_device("node-a", 0, a_share("train", "team-a"), a_share("serve", "team-b", memoryMib=12000))),
    a_node("node-b", a_device("node-b", 0, a_share("train", "team-a", usedMemoryMib=0)), a_device("node-b", 1)),
    waiting=(a_waiting_pod("large", minutes=12), a_waiting_pod("larger", "team-a", minutes=3, cause="")),
    pods=[
        a_status("train", "team-a", minutes=26 * 60),
        a_status(
            "serve", "team-b", phase="Pending", owner="Job/serve", cause="container main: ErrImagePull: no such tag"
        ),
        a_status("large", phase="Pending", minutes=12, owner="", cause=CAUSE),
    ],
)
REPORT: Json = {
    "pod": "default/large",
    "verdict": "refused",
    "summary": CAUSE,
    "nodes": [
        {"name": "node-a", "fits": False, "why": "best device has 25960 MiB left"},
        {"name": "node-b", "fits": False, "why": "best device has 40960 MiB left"},
    ],
    "changes": [{"kind": "ask", "what": "with 40960 MiB", "node": "node-b"}],
    "notes": ["kube-scheduler left out 1 node"],
}
EVENT = {"at": NOW.isoformat(), "type": "Warning", "reason": "FilteringFailed", "message": "0 of 2 nodes", "count": 7}


def test_who_waits_stands_beside_the_devices_with_the_cause(page: Page) -> None:
    """Longest first, with the time, the request and the scheduler's sentence; where there is none, that is said."""
    page.open(PICTURE)

    large, larger = page.texts("#waiting li")

    assert ["default/large", "12 min", "asks nvidia.com/gpu 1, nvidia.com/gpumem 45000"] == large.split("\n")[:3]
    assert large.endswith(CAUSE)
    assert ["team-a/larger", "3 min"] == larger.split("\n")[:2]
    assert larger.endswith("The scheduler has not said why.")
    assert page.find("#waiting").location["x"] > page.find(".nodes").location["x"] + page.find(".nodes").size["width"]


@pytest.mark.parametrize("state", ["/devices", "/pods", "/pod/team-b/serve"])
def test_a_picture_with_nothing_new_leaves_the_page_alone(page: Page, state: str) -> None:
    """So a selected text stays selected, and an open list open; only the time of the picture moves on."""
    page.open(PICTURE, f"#{state}")
    page.eventually(lambda: "Asking the scheduler" not in page.text("#view"))
    page.run("document.querySelectorAll('#view *, #waiting *').forEach((element) => (element.isOld = true))")

    later = NOW + timedelta(seconds=3)
    before = page.text("#as-of")
    page.told.picture = {**PICTURE, "takenAt": later.isoformat()}
    page.eventually(lambda: page.text("#as-of") != before)

    fresh = "return [...document.querySelectorAll('#view *, #waiting *')].filter((element) => !element.isOld).length"
    assert 0 == page.run(fresh)


def test_no_waiting_pod_is_said_in_words(page: Page) -> None:
    """An empty box would look broken."""
    page.open(a_picture(a_node("node-a", a_device("node-a", 0))))

    assert "No Pod waits for a device." in page.text("#waiting")


def test_page_of_a_waiting_pod_explains_and_says_what_would_help(page: Page, told: Told) -> None:
    """The scheduler's summary, the change that lets it fit, each node's reason, and the Events."""
    told.explanations["default/large"] = REPORT
    told.events["default/large"] = [EVENT]
    page.open(PICTURE)

    page.find("#waiting li a").click()
    page.eventually(lambda: "FilteringFailed" in page.text("#view"))

    seen = page.text("#view")
    assert "/pod/default/large" == page.state
    assert "waits 12 min" in page.text("#view h1")
    assert REPORT["summary"] in seen
    assert "with 40960 MiB, on node-b" == page.text(".changes li")
    assert ["node-a best device has 25960 MiB left", "node-b best device has 40960 MiB left"] == page.texts(
        ".reasons li"
    )
    assert ["0 s", "7", "FilteringFailed", "0 of 2 nodes"] == page.texts('[aria-label="Events"] tbody td')


def test_page_of_a_waiting_pod_quotes_kube_scheduler_and_names_what_is_not_judged(page: Page, told: Told) -> None:
    """Beside our own notes, and the words of a queue."""
    words = "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
    held = "Kueue, queue team-a: 4k more needed"
    told.explanations["default/large"] = {
        **REPORT,
        "queue": held,
        "kubeScheduler": words,
        "notJudged": ["pod anti-affinity"],
    }
    page.open(PICTURE, "#/pod/default/large")

    notes = page.eventually(lambda: page.texts(".explanation .note"))

    expected = [held, f"kube-scheduler says: {words}", "not judged here, and the Pod uses it: pod anti-affinity"]
    assert [*expected, *REPORT["notes"]] == notes


def test_page_of_a_running_pod_has_its_shares_and_its_use_over_time(page: Page) -> None:
    """On which device of which node, granted and used, and a curve that grows with each picture."""
    page.open(PICTURE, "#/pod/team-b/serve")

    row = page.eventually(lambda: page.texts('[aria-label="shares"] tbody td'))

    assert ["main", "node-a", "0 · NVIDIA A100-SXM4-40GB", "11.7", "2.0", "", "25 %", "12 %", ""] == row
    page.eventually(lambda: "since this page was opened" in page.text('[aria-label="use over time"]'))
    assert ["memory, 2.0 GiB at the end, 11.7 GiB granted", "compute, 12 % at the end, 25 % granted"] == [
        plain(chart.accessible_name) for chart in page.all(".chart")
    ]


def test_each_pod_has_its_phase_its_age_its_owner_and_why_it_waits(page: Page) -> None:
    """A Pod without a Node, one whose container does not start, and one that runs."""
    page.open(PICTURE, "#/pods")

    rows = {
        cells[1].text: [plain(cell.text) for cell in cells[2:5]]
        for cells in (row.find_elements("css selector", "td") for row in page.all("tbody tr:not(.below)"))
    }

    assert {
        "large": ["", "waits", "12 min"],
        "larger": ["", "waits", "3 min"],
        "serve": ["Job/serve", "Pending", "1 h 30 min"],
        "train": ["Deployment/train", "Running", "1 d 2 h"],
    } == rows
    assert [CAUSE, "container main: ErrImagePull: no such tag"] == page.texts("tr.below")


def test_page_of_a_pod_says_its_phase_its_owner_and_what_it_waits_for(page: Page) -> None:
    """A Pod that holds a device without running costs the device."""
    page.open(PICTURE, "#/pod/team-b/serve")

    assert "Pending" == page.text("#view h1 .badge")
    assert "Job/serve · age 1 h 30 min" == page.text("#view .facts")
    assert "container main: ErrImagePull: no such tag" == page.text("#view .problem")


def test_a_cluster_without_pods_says_how_one_asks_for_a_device(page: Page) -> None:
    """An empty table would be a dead end."""
    page.open(a_picture(a_node("node-a", a_device("node-a", 0))), "#/pods")

    assert "nvidia.com/gpu: 1" in page.text("#view .nothing")
    page.find("#view .nothing a").click()
    page.eventually(lambda: page.state == "/simulate")


def test_a_pod_that_is_gone_is_said_to_be_gone(page: Page) -> None:
    """An old link must not look like a Pod without shares."""
    page.open(PICTURE, "#/pod/team-a/deleted")

    page.eventually(lambda: "This Pod neither holds nor waits for a device now." in page.text("#view"))
    page.eventually(lambda: "the scheduler does not know Pod team-a/deleted" in page.text("#view"))


def test_search_leaves_the_devices_that_match_and_fades_the_shares_of_others(page: Page) -> None:
    """The search is in the address while it is typed."""
    page.open(PICTURE)

    page.press("/", *"ns:team-b")

    page.eventually(lambda: ["node-a"] == page.texts(".node h2"))
    assert "/devices?q=ns%3Ateam-b" == page.state
    assert ["train"] == page.texts(".bar.memory .share.is-faded")


@pytest.mark.parametrize(
    ("search", "nodes"),
    [
        ("node-b", ["node-b"]),
        ("serve", ["node-a"]),
        ("ns:team-a", ["node-a", "node-b"]),
        ("ns:team", []),
        ("ns:team*", ["node-a", "node-b"]),
        ("pod:train node:node-b", ["node-b"]),
        ("is:idle", ["node-b"]),
        ("is:free", ["node-b"]),
        ("device:h100", []),
        ("ns:team-a is:idle", ["node-b"]),
        ("ns:team-b is:idle", []),
        ("serve node-a is:idle", []),
    ],
)
def test_search_finds(page: Page, search: str, nodes: list[str]) -> None:
    """By name, or by a field; all words must match, and those about a share the same one."""
    page.open(PICTURE, f"#/devices?q={search}")

    assert nodes == page.texts(".node h2")
    assert bool(nodes) != (f"No device matches “{search}”." in page.text("#view"))


@pytest.mark.parametrize(
    ("view", "search", "said"),
    [
        ("devices", "is:bogus", "is:bogus is no state; here is: takes free, unhealthy, full, idle, throttled."),
        ("devices", "is:waiting", "is:waiting is about Pods; here is: takes free, unhealthy, full, idle, throttled."),
        ("pods", "is:free", "is:free is about devices; here is: takes waiting, running, idle, throttled."),
        ("devices", "namespace:a", "namespace: is no field; the fields are ns:, pod:, node:, device: and is:."),
    ],
)
def test_search_says_which_word_it_does_not_know(page: Page, view: str, search: str, said: str) -> None:
    """Nobody takes a slip of the pen for a cluster without such devices."""
    page.open(PICTURE, f"#/{view}?q={search}")

    assert said == page.text("#view .nothing")


@pytest.mark.parametrize(
    "state",
    [
        "/devices",
        "/devices?q=ns%3Ateam-b",
        "/devices?sort=idle&size=small",
        "/node/node-b?device=GPU-node-b-1",
        "/pods?sort=-granted",
        "/pods?q=is%3Awaiting",
        "/pod/default/large",
    ],
)
def test_each_state_has_a_link_that_shows_it_again(page: Page, told: Told, state: str) -> None:
    """Opened afresh, the address shows the same, in the same order; only curves go on."""
    told.explanations["default/large"] = REPORT

    def shown() -> str:
        return str(
            page.run(
                "const view = document.getElementById('view').cloneNode(true);"
                "view.querySelectorAll('.charts, [aria-label$=\"over time\"]').forEach((one) => one.remove());"
                "return view.textContent"
            )
        )

    page.open(PICTURE, f"#{state}")
    page.eventually(lambda: "Asking the scheduler" not in shown())
    before = shown()

    page.open(PICTURE, f"#{state}")
    page.eventually(lambda: before == shown())

    assert state == page.state
    assert before


def test_back_returns_to_the_search(page: Page) -> None:
    """Each page is a step of the browser's history; each typed letter is none."""
    page.open(PICTURE)
    page.press("/", *"ns:team-b")
    page.find('[data-share="team-b/serve/main"]').click()
    page.eventually(lambda: page.state == "/pod/team-b/serve")

    page.driver.back()

    page.eventually(lambda: ["node-a"] == page.texts(".node h2"))
    assert "ns:team-b" == page.find("#search").get_property("value")


def test_table_of_pods_sorts_and_its_numbers_align(page: Page) -> None:
    """The largest first; digits stand below digits, at the right edge."""
    page.open(PICTURE, "#/pods")
    page.find("th:nth-child(8) a").click()
    page.eventually(lambda: page.state == "/pods?sort=-granted")

    rows = [[cell.text for cell in row.find_elements("css selector", "td")] for row in page.all("tbody tr:not(.below)")]
    edges = page.run(
        "return [...document.querySelectorAll('td.number:nth-child(8)')].filter((e) => e.textContent).map((cell) => {"
        "const range = document.createRange(); range.selectNodeContents(cell);"
        "return range.getBoundingClientRect().right; })"
    )

    assert [("team-b", "serve"), ("team-a", "train")] == [tuple(row[:2]) for row in rows[:2]]
    assert "descending" == page.find("th:nth-child(8)").get_attribute("aria-sort")
    assert 1 == len({round(edge) for edge in edges})
    assert "tabular-nums" == page.find("td.number").value_of_css_property("font-variant-numeric")


def test_nodes_sort_by_what_is_granted_and_lies_idle(page: Page) -> None:
    """The question before more devices are bought."""
    page.open(a_cluster(80), "#/devices?sort=idle")

    def idle_mib(node: dict[str, Any]) -> int:
        shares = [share for device in node["devices"] for share in device["shares"]]
        return sum(share["memoryMib"] - share["usedMemoryMib"] for share in shares)

    expected = sorted(page.told.picture["nodes"], key=idle_mib, reverse=True)
    assert [node["name"] for node in expected] == page.texts(".node h2")


def test_a_cluster_that_does_not_answer_is_said_and_the_last_picture_stays(page: Page, told: Told) -> None:
    """With the server's sentence, until it answers again."""
    page.expect_error("503")
    page.open(PICTURE)

    told.problem = "the API server https://10.0.0.1 does not answer: timed out"
    page.eventually(lambda: told.problem in page.text("#trouble"))
    assert 2 == len(page.all(".node"))

    told.problem = ""
    page.eventually(lambda: not page.find("#trouble").is_displayed())


def test_what_could_not_be_read_is_said_above_the_devices(page: Page) -> None:
    """A picture with gaps must not look whole."""
    page.open({**PICTURE, "problems": ["use is unknown on node-b: the monitor does not answer"]})

    assert "use is unknown on node-b: the monitor does not answer" == page.text("#problems")
