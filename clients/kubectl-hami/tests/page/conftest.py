"""
The page's server over a picture that tests change, and a browser.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver

from kubectl_hami.page.questions import Questions
from kubectl_hami.page.server import serve
from testbed import browser as chromium

from .page import Page, Told


@pytest.fixture
def told() -> Told:
    """What the cluster tells the page."""
    return Told()


@pytest.fixture
def questions(told: Told) -> Questions:
    """The page's questions, answered by *told*, and asked again every 0.2 s."""
    return Questions(told, refresh_seconds=0.2)


@pytest.fixture
def address(questions: Questions) -> Iterator[str]:
    """The address of a running server, with its token."""
    server, gate = serve(questions)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield gate.address
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    """One browser for all tests of this process. Tests are skipped where there is none."""
    if lacking := chromium.missing():
        pytest.skip(lacking)
    folder: Path = tmp_path_factory.mktemp("browser")
    with chromium.running(folder) as started:
        yield started


@pytest.fixture
def page(driver: WebDriver, address: str, told: Told) -> Iterator[Page]:
    """The page in the browser, without the traces of other tests. What it logs fails the test."""
    chromium.prefer(driver, is_dark=False)
    chromium.resize(driver, 1440, 900)
    page = Page(driver, address, told)
    yield page
    errors = _logged(driver)
    driver.execute_script("localStorage.clear()")
    driver.get("about:blank")
    driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
    _logged(driver)
    assert [] == [error for error in errors if not page.expects(error)]


def _logged(driver: WebDriver) -> list[str]:
    """Return what the browser has logged since the last call."""
    return [entry["message"] for entry in driver.get_log("browser")]  # type: ignore[no-untyped-call]
