"""
The pictures of large clusters in the documentation are what a browser shows.
"""

from pathlib import Path

import pytest

from .page import Page
from .pictures import a_cluster


@pytest.mark.parametrize("devices", [80, 800])
def test_a_picture_of_a_large_cluster_is_made(
    page: Page, tmp_path: Path, request: pytest.FixtureRequest, devices: int
) -> None:
    """It shows all devices, and is small enough to be kept with the documentation."""
    page.open(a_cluster(devices))
    file = (request.config.getoption("--pictures") or tmp_path) / f"page-{devices}.webp"

    page.photograph(file)

    assert f"{devices} devices" in page.text("#summary")
    assert file.read_bytes().startswith(b"RIFF")
    assert file.stat().st_size < 200_000
