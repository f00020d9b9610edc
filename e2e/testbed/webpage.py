"""
A page in a browser as a person sees it: what tests say instead of the driver's calls.

Neighbours: `browser` starts the browser.
"""

import base64
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

T = TypeVar("T")
WAIT_SECONDS = 15.0
PICTURE_QUALITY = 85


class WebPage:
    """The page that a browser shows."""

    def __init__(self, driver: WebDriver) -> None:
        self.driver = driver

    def find(self, selector: str) -> WebElement:
        """Return the first element."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        """Return all elements."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """Return the text that is seen in the first element, with plain spaces."""
        return plain(self.find(selector).text)

    def texts(self, selector: str) -> list[str]:
        """Return the text that is seen in each element, with plain spaces."""
        return [plain(element.text) for element in self.all(selector)]

    def run(self, script: str, *arguments: object) -> Any:
        """Return what *script* returns."""
        return self.driver.execute_script(script, *arguments)

    def press(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    @property
    def focused(self) -> str:
        """The name of the element with the focus, as a screen reader says it."""
        return plain(self.driver.switch_to.active_element.accessible_name)

    @property
    def state(self) -> str:
        """The part of the address behind #."""
        return self.driver.current_url.partition("#")[2]

    def go(self, state: str) -> None:
        """Follow a link to *state*, the part of the address behind #."""
        self.run("location.hash = arguments[0]", state)

    def eventually(self, holds: Callable[[], T]) -> T:
        """Wait until *holds* returns something true, and return that."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                found = holds()
            except (NoSuchElementException, StaleElementReferenceException):
                found = None
            if found:
                return found
            assert time.monotonic() < deadline, self.text("body")
            time.sleep(0.02)

    def photograph(self, file: Path) -> None:
        """Write what is seen into a WebP file."""
        asked = {"format": "webp", "quality": PICTURE_QUALITY}
        taken = self.driver.execute_cdp_cmd("Page.captureScreenshot", asked)
        file.write_bytes(base64.b64decode(taken["data"]))


def plain(text: str) -> str:
    """Return *text* with ordinary spaces."""
    return text.replace("\N{NO-BREAK SPACE}", " ").replace("\N{THIN SPACE}", " ")
