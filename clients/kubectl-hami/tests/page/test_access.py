"""
The page for every person: keyboard, colours, names for screen readers; and against texts of tenants.
"""

import itertools

import pytest
from selenium.webdriver.common.keys import Keys

from testbed import browser

from .page import Page, Told
from .pictures import HOSTILE, NOW, a_cluster, a_device, a_node, a_picture, a_share, a_status, a_waiting_pod
from .test_commands import a_comparison, a_report

PICTURE = a_picture(
    a_node("node-a", a_device("node-a", 0, a_share("train")), a_device("node-a", 1)),
    a_node("node-b", a_device("node-b", 0, a_share("serve"))),
    waiting=(a_waiting_pod("large"),),
)
READ_AND_HEARD = """
    return [document.title, document.body.innerText]
        .concat([...document.querySelectorAll('*')].flatMap((one) => [one.getAttribute('title'), one.ariaLabel]))
        .filter((text) => new RegExp(arguments[0]).test(text))
"""
"""Returns every text of the page that matches a pattern: what is seen, the tips, and what a screen reader says."""
CONTRAST = 4.5
"""Source: https://www.w3.org/TR/WCAG21/#contrast-minimum"""


def test_arrows_walk_over_the_devices_and_enter_opens_one(page: Page) -> None:
    """Down to the next device of the node, right to the next node, with a frame around the focus."""
    page.open(PICTURE)

    page.press("/", Keys.ARROW_DOWN)
    assert page.focused.startswith("device node-a 0,")
    page.press(Keys.ARROW_DOWN)
    assert page.focused.startswith("device node-a 1,")
    page.press(Keys.ARROW_RIGHT)
    assert page.focused.startswith("device node-b 0,")
    assert "none" != page.driver.switch_to.active_element.value_of_css_property("outline-style")
    page.press(Keys.ENTER)

    page.eventually(lambda: page.state == "/node/node-b?device=GPU-node-b-0")


def test_escape_leads_back_to_the_search_that_was_left(page: Page) -> None:
    """First it ends the page of a node, then the search."""
    page.open(PICTURE, "#/devices?q=train")
    page.press("/", Keys.ARROW_DOWN, Keys.ENTER)
    page.eventually(lambda: page.state.startswith("/node/node-a"))

    page.press(Keys.ESCAPE)
    page.eventually(lambda: page.state == "/devices?q=train")
    page.press(Keys.ESCAPE)

    page.eventually(lambda: page.state == "/devices")


def test_tab_reaches_everything_in_the_order_of_the_page_and_one_device(page: Page) -> None:
    """800 devices are one stop of the Tab key; the arrows reach the others."""
    page.open(a_cluster(800))
    page.run("document.activeElement.blur()")

    stops = []
    for _ in range(40):
        page.press(Keys.TAB)
        stops.append(page.driver.switch_to.active_element.get_attribute("class"))
        if stops[-1] == "device-name":
            break
    page.press(Keys.TAB)

    assert "device-name" == stops[-1]
    assert page.run("return document.activeElement.closest('#waiting') !== null")


def test_the_focus_stays_while_pictures_change(page: Page) -> None:
    """A person who walks over the devices is not thrown back by the next picture."""
    share = a_share("train")
    page.open(a_picture(a_node("node-a", a_device("node-a", 0, share), a_device("node-a", 1))))
    page.press("/", Keys.ARROW_DOWN)

    share["pod"] = "other"
    page.eventually(lambda: ["other"] == page.texts(".bar.memory .share"))

    assert page.focused.startswith("device node-a 0,")


def test_the_list_of_keys_opens_and_closes(page: Page) -> None:
    """By its key, and by Escape."""
    page.open(PICTURE)

    page.press("?")
    assert "walk over the devices" in page.text("#help")
    page.press(Keys.ESCAPE)

    page.eventually(lambda: not page.find("#help").is_displayed())


@pytest.mark.parametrize(
    "state",
    ["/devices", "/pods", "/node/node-a", "/pod/default/train", "/doctor", "/grants", "/usage/pods", "/simulate"],
)
def test_all_that_takes_the_focus_has_a_name(page: Page, state: str) -> None:
    """A screen reader has something to say of each."""
    page.open(PICTURE, f"#{state}")

    nameless = [
        element.get_attribute("outerHTML")
        for element in page.all("a[href]:not([tabindex='-1']), button, input, select")
        if element.is_displayed() and not element.accessible_name
    ]

    assert [] == nameless


def test_colours_follow_the_system_until_a_person_chooses(page: Page) -> None:
    """The choice survives a reload."""

    def is_dark() -> bool:
        return bool(page.run("return brightness('body', 'background-color') < 0.2") if define(page) else False)

    page.open(PICTURE)
    assert not is_dark()
    browser.prefer(page.driver, is_dark=True)
    page.eventually(is_dark)
    browser.prefer(page.driver, is_dark=False)

    page.find("#theme").click()
    page.eventually(is_dark)
    page.open(PICTURE)

    assert is_dark()


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_texts_can_be_read_in_both_themes(page: Page, is_dark: bool) -> None:
    """Every text stands out from what is behind it, the names in shares of all colours included."""
    shares = [a_share(f"owner-{number}", memoryMib=4000) for number in range(8)]
    sick = a_device("node-b", 0, isHealthy=False, isCordoned=True)
    browser.prefer(page.driver, is_dark=is_dark)
    page.open(
        a_picture(
            a_node("node-a", a_device("node-a", 0, *shares)), a_node("node-b", sick), waiting=(a_waiting_pod("large"),)
        )
    )
    define(page)

    found = page.run("""
        return [...document.querySelectorAll('body *')]
            .filter((e) => e.checkVisibility())
            .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()))
            .map((e) => [e.textContent.trim().slice(0, 40), contrast(e)])
    """)

    assert [] == [(text, round(ratio, 2)) for text, ratio in found if ratio < CONTRAST]
    assert len(found) > 30


def test_texts_of_tenants_are_shown_and_do_nothing(page: Page, told: Told) -> None:
    """Markup is text, and characters that turn the reading order round become visible marks."""
    share = a_share(HOSTILE, HOSTILE, container=HOSTILE)
    told.explanations["default/large"] = {
        "summary": HOSTILE,
        "nodes": [{"name": HOSTILE, "fits": False, "why": HOSTILE}],
        "changes": [{"what": HOSTILE, "node": HOSTILE}],
        "notes": [HOSTILE],
        "kubeScheduler": HOSTILE,
        "notJudged": [HOSTILE],
    }
    told.events["default/large"] = [
        {"at": NOW.isoformat(), "type": HOSTILE, "reason": HOSTILE, "message": HOSTILE, "count": 1}
    ]
    waiting = a_waiting_pod("large", asks=HOSTILE, cause=HOSTILE)
    status = a_status(HOSTILE, HOSTILE, phase=HOSTILE, owner=HOSTILE, cause=HOSTILE)
    picture = a_picture(
        a_node(HOSTILE, a_device(HOSTILE, 0, share, model=HOSTILE)),
        cluster=f"demo {HOSTILE}",
        waiting=(waiting,),
        pods=[status, {**status, "namespace": "default", "pod": "large"}],
        problems=[HOSTILE],
    )

    told.checks = [{"name": HOSTILE, "health": HOSTILE, "found": HOSTILE, "fix": HOSTILE}]
    told.grants = [a_comparison(HOSTILE, HOSTILE, HOSTILE, namespace=HOSTILE, container=HOSTILE)]
    told.usages["pods", ""] = [
        {"namespace": HOSTILE, "pod": HOSTILE, "model": HOSTILE, "heldHours": 1.0, "usedHours": None}
    ]

    for state in ("/devices", "/pods", "/pod/default/large", "/doctor", "/grants", "/usage/pods"):
        page.open(picture, f"#{state}")
        page.eventually(lambda: "Asking" not in page.text("#view") and '<img src=x onerror="' in page.text("#view"))

        assert [] == page.all("img, script:not([src])")
        assert "owned" != page.driver.title
        assert "\N{REPLACEMENT CHARACTER}red\N{REPLACEMENT CHARACTER}" in page.text("body")
        assert [] == page.run(READ_AND_HEARD, "\u202e|\u0007")


def test_a_schedulers_answer_about_a_manifest_is_text(page: Page, told: Told) -> None:
    """What it quotes of others does nothing."""
    words = {"headline": HOSTILE, "summary": HOSTILE, "added": [HOSTILE], "node": HOSTILE}
    given = {"container": HOSTILE, "device": HOSTILE, "model": HOSTILE, "migProfile": HOSTILE, "index": 0}
    place = {"node": HOSTILE, "count": 1}
    told.reports = [
        a_report(HOSTILE, **words, gets=[{**given, "memoryMib": 1, "corePercent": 1}], places=[place], notes=[HOSTILE])
    ]
    page.open(PICTURE, "#/simulate")
    page.find("[name='manifest']").send_keys("kind: Pod")
    page.find(".simulate button").click()

    page.eventually(lambda: 8 <= page.text("#view").count("\N{REPLACEMENT CHARACTER}red\N{REPLACEMENT CHARACTER}"))
    assert [] == page.all("img, script:not([src])")
    assert "owned" != page.driver.title


def test_scripts_that_are_not_the_pages_own_do_not_run(page: Page) -> None:
    """If a text should ever become markup, the browser refuses to run it."""
    page.expect_error("Content Security Policy")
    page.open(PICTURE)

    page.run(
        "document.body.insertAdjacentHTML('beforeend', '<img src=\"data:,\" onerror=\"document.title = `owned`\">')"
    )
    page.run(
        "const made = document.createElement('script'); made.textContent = 'document.title = `owned`';"
        "document.body.append(made)"
    )
    page.eventually(lambda: page.all("img"))

    assert "owned" != page.driver.title


def test_nothing_is_fetched_from_elsewhere(page: Page) -> None:
    """The page works on a machine without the internet."""
    page.open(a_cluster(80))

    names = page.run("return performance.getEntriesByType('resource').map((one) => new URL(one.name).origin)")

    assert {page.run("return location.origin")} == set(names)
    assert "" == page.run("return document.referrer")


def test_all_styles_come_from_the_named_colours(page: Page) -> None:
    """Both themes define each colour that is used."""
    page.open(PICTURE)

    rules = page.run(
        "return [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules].map((rule) => rule.cssText))"
    )
    text = "\n".join(itertools.chain(rules))
    used = {name.split(")")[0].split(",")[0] for name in text.split("var(")[1:]}
    defined = {
        word.split(":")[0].strip() for word in text.replace("{", ";").split(";") if word.strip().startswith("--")
    }

    assert {"--owner", "--granted", "--used"} == used - defined


def define(page: Page) -> bool:
    """Define the functions `brightness` and `contrast` in the page."""
    page.run("""
        const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
        const pixel = (colours) => {
            canvas.clearRect(0, 0, 1, 1);
            colours.forEach((colour) => { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); });
            return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
        };
        const luminance = (colours) => {
            const [red, green, blue] = pixel(colours).map((value) => value / 255)
                .map((value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
            return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
        };
        const backs = (element) =>
            element ? [...backs(element.parentElement), getComputedStyle(element).backgroundColor] : ["white"];
        window.brightness = (selector, name) => luminance([getComputedStyle(document.querySelector(selector))[name]]);
        window.contrast = (element) => {
            const back = luminance(backs(element)) + 0.05;
            const front = luminance([...backs(element), getComputedStyle(element).color]) + 0.05;
            return Math.max(back, front) / Math.min(back, front);
        };
    """)
    return True
