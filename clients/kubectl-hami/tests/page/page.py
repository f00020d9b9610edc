"""
The page of `kubectl hami ui` in a browser, over a cluster that tests change while it is open.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from selenium.webdriver.chrome.webdriver import WebDriver

from hamicommon.errors import HamiError
from testbed.webpage import WebPage

from .pictures import Json, a_picture


class Told:
    """What the cluster tells the page."""

    def __init__(self) -> None:
        self.picture: Json = a_picture()
        self.explanations: dict[str, Json] = {}
        self.events: dict[str, Sequence[Json]] = {}
        self.problem = ""
        self.checks: list[Json] = []
        self.grants: list[Json] = []
        self.usages: dict[tuple[str, str], list[Json]] = {}
        self.spans: list[str] = []
        self.reports: list[Json] = []
        self.sent: list[tuple[str, str, list[str]]] = []
        """The manifests that were simulated, with namespace and imagined Nodes."""

    def read_picture(self) -> Mapping[str, Any]:
        """Return the picture, or fail with the problem."""
        if self.problem:
            raise HamiError(self.problem)
        return self.picture

    def read_explanation(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Return the report about a Pod, or fail."""
        try:
            return self.explanations[f"{namespace}/{name}"]
        except KeyError:
            raise HamiError(f"the scheduler does not know Pod {namespace}/{name}") from None

    def read_events(self, namespace: str, name: str) -> Sequence[Mapping[str, Any]]:
        """Return the Events about a Pod."""
        return self.events.get(f"{namespace}/{name}", ())

    def read_doctor(self) -> Mapping[str, Any]:
        """Return the checks, or fail with the problem."""
        if self.problem:
            raise HamiError(self.problem)
        return {"checks": self.checks, "problems": []}

    def read_grants(self) -> Mapping[str, Any]:
        """Return the comparisons."""
        return {"grants": self.grants}

    def read_usage(self, of: str, span: str) -> Mapping[str, Any]:
        """Return device-hours."""
        return {"usage": self.usages.get((of, span), []), "spans": self.spans, "problems": []}

    def read_simulation(self, manifest: str, namespace: str, nodes: Sequence[str]) -> Mapping[str, Any]:
        """Remember what was asked, and return the reports; fail if there are none."""
        self.sent.append((manifest, namespace, list(nodes)))
        if not self.reports:
            raise HamiError("the manifest: neither JSON nor YAML")
        return {"reports": self.reports}


class Page(WebPage):
    """The page, opened on a picture."""

    def __init__(self, driver: WebDriver, address: str, told: Told) -> None:
        super().__init__(driver)
        self.address = address
        self.told = told
        self._expected: list[str] = []

    def open(self, picture: Json | None = None, state: str = "") -> None:
        """Open the page at *state*, and wait until it shows *picture*."""
        if picture is not None:
            self.told.picture = picture
        self.driver.get("about:blank")
        self.driver.get(self.address + state)
        self.eventually(lambda: self.text("#cluster")[:4] == self.told.picture["cluster"][:4])

    def in_sight(self, selector: str) -> list[bool]:
        """Return of each element whether all of it is in the window, without scrolling."""
        found: list[bool] = self.run(
            "return [...document.querySelectorAll(arguments[0])].map((one) => one.getBoundingClientRect()).map((box) =>"
            "box.top >= 0 && box.left >= 0 && box.bottom <= innerHeight && box.right <= innerWidth && box.height > 0)",
            selector,
        )
        return found

    def expect_error(self, part: str) -> None:
        """Let the browser log errors that have *part*."""
        self._expected.append(part)

    def expects(self, error: str) -> bool:
        """Return whether a test said that this error would be logged."""
        return any(part in error for part in self._expected)
