"""
The answers of `doctor`, `grants`, `usage` and `simulate` on the page.
"""

from typing import Any

import pytest
from selenium.webdriver.common.by import By

from testbed.webpage import plain

from .page import Page, Told
from .pictures import Json, a_device, a_node, a_picture, a_share

PICTURE = a_picture(a_node("node-a", a_device("node-a", 0, a_share("train", "team-a"), a_share("serve", "team-b"))))
UNKNOWN = "\N{EN DASH}"
CHECKS = [
    {"name": "services", "health": "good", "found": "3 Pods run", "fix": ""},
    {"name": "versions", "health": "unknown", "found": "no version can be read", "fix": "ask for get on pods/proxy"},
    {"name": "locks", "health": "doubtful", "found": "an old lock on n1", "fix": "kubectl annotate node n1 lock-"},
    {"name": "driver", "health": "bad", "found": "the driver does not answer on n2", "fix": "run nvidia-smi on n2"},
]


def a_comparison(pod: str, verdict: str, why: str, **fields: Any) -> Json:
    """Return a comparison of a share on device 0 of `node-a`."""
    share = {**a_share(pod, "team-a"), "driverMemoryMib": None, "findings": [], "phase": "success", **fields}
    place = {"cluster": "demo", "node": "node-a", "device": "GPU-node-a-0", "index": 0}
    return {**place, "share": share, "verdict": verdict, "why": why}


def a_report(pod: str, **fields: Any) -> Json:
    """Return the scheduler's report about a Pod that fits `node-a`."""
    report = {
        "pod": pod,
        "verdict": "fits",
        "isWell": True,
        "headline": f"{pod} fits node node-a (nodes binpack, devices binpack)",
        "summary": "fits node node-a",
        "node": "node-a",
        "gets": [
            {
                "container": "main",
                "device": "GPU-node-a-0",
                "memoryMib": 4096,
                "corePercent": 30,
                "model": "NVIDIA A100-SXM4-40GB",
                "index": 0,
                "migProfile": "",
            }
        ],
        "nodes": [{"name": "node-a", "fits": True, "why": "fits"}],
        "changes": [],
        "notes": [],
    }
    return report | fields


def cells(page: Page, within: str) -> list[list[str]]:
    """Return the texts of a table, row by row."""
    rows = page.eventually(lambda: page.all(f"{within} tbody tr"))
    return [[plain(cell.text) for cell in row.find_elements(By.TAG_NAME, "td")] for row in rows]


def test_doctor_has_each_check_with_its_fix_the_worst_first(page: Page, told: Told) -> None:
    """As `kubectl hami doctor` says them, and what could not be read above."""
    told.checks = CHECKS
    page.open(PICTURE)
    page.find("nav [data-view='doctor']").click()

    checks = page.eventually(lambda: page.texts(".check"))

    assert [
        ["bad driver", "the driver does not answer on n2", "Fix: run nvidia-smi on n2"],
        ["doubtful locks", "an old lock on n1", "Fix: kubectl annotate node n1 lock-"],
        ["unknown versions", "no version can be read", "Fix: ask for get on pods/proxy"],
        ["good services", "3 Pods run"],
    ] == [text.split("\n") for text in checks]
    assert "4 checks: 1 bad, 1 doubtful, 1 unknown, 1 good" == page.text("#view .facts")


def test_a_doctor_that_cannot_look_says_why(page: Page, told: Told) -> None:
    """With the server's sentence, in place of the checks."""
    page.expect_error("503")
    page.open(PICTURE)

    told.problem = "pods: forbidden"
    page.go("/doctor")

    page.eventually(lambda: "pods: forbidden" in page.text("#view .problem"))


def test_grants_has_what_was_promised_and_what_is_real_broken_ones_first(page: Page, told: Told) -> None:
    """Limit, use and the driver's count beside the grant, and why the verdict is so; the search leaves some."""
    told.grants = [
        a_comparison("serve", "kept", "the container's limit is its grant"),
        a_comparison("train", "broken", "its limit is no MiB, and 3000 MiB are granted", limitMemoryMib=0),
    ]
    page.open(PICTURE, "#/grants")

    rows = cells(page, "[aria-label='grants']")

    place, used = ["main", "node-a 0", "2.9"], ["2.0", UNKNOWN, "25 %"]
    assert [
        ["broken", "team-a", "train", *place, "none", *used, "its limit is no MiB, and 3000 MiB are granted"],
        ["kept", "team-a", "serve", *place, "2.9", *used, "the container's limit is its grant"],
    ] == rows
    page.press("/", *"train")
    page.eventually(lambda: 1 == len(page.all("#view tbody tr")))
    assert "/grants?q=train" == page.state


def test_usage_has_the_device_hours_of_each_table_and_span(page: Page, told: Told) -> None:
    """Of namespaces since counting began; with Prometheus also of the last days."""
    told.spans = ["24h", "7d"]
    row = {"namespace": "team-a", "pod": None, "model": "T4", "offeredHours": None, "idleHours": None}
    told.usages["namespaces", ""] = [{**row, "heldHours": 8.0, "usedHours": 2.0}]
    told.usages["pods", "7d"] = [{**row, "pod": "train", "heldHours": 4.0, "usedHours": None}]
    page.open(PICTURE)
    page.find("nav [data-view='usage']").click()

    assert [["team-a", "T4", "8.00 h", "2.00 h", "25 %"]] == cells(page, "[aria-label='usage of namespaces']")
    choices = ["namespaces", "pods", "models", "since counting began", "last 24h", "last 7d"]
    assert choices == page.texts("#view .owner")

    page.go("/usage/pods?since=7d")
    [cells_of_train] = cells(page, "[aria-label='usage of pods']")
    assert ["team-a", "train", "T4", "4.00 h", UNKNOWN, UNKNOWN] == cells_of_train


def test_a_pasted_manifest_is_simulated(page: Page, told: Told) -> None:
    """The Node and devices that its Pods would get, and nothing else happens."""
    told.reports = [a_report("team-a/new")]
    page.open(PICTURE, "#/simulate")
    manifest = "kind: Pod\nmetadata:\n  name: new\n"
    page.run("document.querySelector('[name=manifest]').value = ''")
    page.find("[name='manifest']").send_keys(manifest)
    page.find("[name='namespace']").send_keys("team-a")
    page.find("[name='nodes']").send_keys("2x8 NVIDIA-L40S:49140")
    page.find(".simulate button").click()

    rows = cells(page, "[aria-label='simulation of team-a/new']")

    assert [(manifest, "team-a", ["2x8 NVIDIA-L40S:49140"])] == told.sent
    assert [["main", "node-a 0", "NVIDIA A100-SXM4-40GB", "4.0 GiB", "30 %"]] == rows
    assert "fits team-a/new fits node node-a (nodes binpack, devices binpack)" == page.text("#view h2")


def test_a_manifest_that_fits_nowhere_has_what_would_help(page: Page, told: Told) -> None:
    """The scheduler's explanation, as on the page of a Pod that waits."""
    changes = [{"kind": "ask", "what": "with 40960 MiB", "node": "node-a"}]
    told.reports = [
        a_report("a/new", verdict="refused", isWell=False, headline="a/new fits nowhere", gets=[], changes=changes)
    ]
    page.open(PICTURE, "#/simulate")
    page.find("[name='manifest']").send_keys("kind: Pod")
    page.find(".simulate button").click()

    page.eventually(lambda: "refused a/new fits nowhere" in page.texts("#view h2"))
    assert "with 40960 MiB, on node-a" == page.text(".changes li")


def test_a_manifest_that_cannot_be_read_is_said_and_kept(page: Page, told: Told) -> None:
    """What was typed is still there after a look at another view."""
    page.expect_error("503")
    page.open(PICTURE, "#/simulate")
    page.find("[name='manifest']").send_keys("{")
    page.find(".simulate button").click()

    page.eventually(lambda: "the manifest: neither JSON nor YAML" in page.text("#view"))
    page.go("/devices")
    page.eventually(lambda: page.all(".nodes"))
    page.go("/simulate")

    page.eventually(lambda: page.all("[name='manifest']"))
    assert "{" == page.find("[name='manifest']").get_property("value")


@pytest.mark.parametrize("state", ["/doctor", "/grants", "/usage/pods"])
def test_an_answer_that_stays_the_same_leaves_the_view_alone(page: Page, told: Told, state: str) -> None:
    """A person who selects a fix keeps the selection."""
    told.checks = CHECKS
    page.open(PICTURE, f"#{state}")
    page.eventually(lambda: "Asking" not in page.text("#view"))
    page.run("document.querySelectorAll('#view *').forEach((element) => (element.isOld = true))")

    page.run("window.asked = performance.getEntriesByType('resource').length")
    page.eventually(lambda: page.run("return performance.getEntriesByType('resource').length > asked + 4"))

    assert 0 == page.run("return [...document.querySelectorAll('#view *')].filter((one) => !one.isOld).length")
