"""
A browser without a screen: Debian's Chromium, driven by Selenium.

Owns how it is installed and started. `python -m testbed.browser` installs it, or says in one line why it cannot. Tests
never install it: that may take longer than a test has. Neighbours: `debian` installs packages.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from selenium import webdriver
from selenium.webdriver.chrome.webdriver import WebDriver

from testbed import debian

PACKAGES: Final = {"chromium": "chromium", "chromium-driver": "chromedriver"}
START_SECONDS: Final = 60


def missing() -> str:
    """Return why there is no browser, for people; empty if there is one."""
    lacking = debian.missing(PACKAGES)
    return f"no browser: {', '.join(lacking)} missing; as root: .venv/bin/python -m testbed.browser" if lacking else ""


@contextmanager
def running(folder: Path, *, width: int = 1440, height: int = 900, is_dark: bool = False) -> Iterator[WebDriver]:
    """
    Yield a browser with its files in *folder*, and end it.

    width, height   of the page, in pixels
    is_dark         what the browser tells pages that a person prefers
    """
    options = webdriver.ChromeOptions()
    options.binary_location = _found("chromium")
    flags = [
        "--headless=new",
        "--disable-dev-shm-usage",
        "--force-device-scale-factor=1",
        "--hide-scrollbars",
        f"--user-data-dir={folder}",
    ]
    if os.geteuid() == 0:
        flags.append("--no-sandbox")  # Chromium refuses to start as root with one
    for flag in flags:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(_found("chromedriver")))
    try:
        driver.set_page_load_timeout(START_SECONDS)
        resize(driver, width, height)
        prefer(driver, is_dark=is_dark)
        yield driver
    finally:
        driver.quit()


def resize(driver: WebDriver, width: int, height: int) -> None:
    """Make the page *width* by *height* pixels large."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def prefer(driver: WebDriver, *, is_dark: bool) -> None:
    """Have the browser tell pages which colours a person prefers."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def main() -> None:
    """Install what this machine lacks of the browser and its driver."""
    try:
        debian.ensure(PACKAGES, lambda line: print(line, flush=True))
    except debian.PackageError as error:
        print(f"no browser, so no test of the page: {str(error).splitlines()[0]}")


def _found(command: str) -> str:
    path = shutil.which(command)
    assert path is not None, f"{command} is missing; `python -m testbed.browser` installs it"
    return path


if __name__ == "__main__":
    main()
