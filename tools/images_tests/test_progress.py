"""
A long build says how far it is.
"""

from pathlib import Path

import pytest

from image.buildah import last_step

LOG = """\
[1/2] STEP 1/7: FROM localhost/hami/python AS build
[1/2] STEP 7/7: RUN sh services/install.sh requirements/webhook.lock
Successfully built hami-webhook
"""


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        pytest.param(LOG, "[1/2] STEP 7/7: RUN", id="the last of several stages"),
        pytest.param("STEP 1/4: FROM scratch\n", "STEP 1/4: FROM", id="one stage"),
        pytest.param("", "", id="nothing yet"),
    ],
)
def test_progress_is_the_last_step_that_has_begun(log: str, expected: str, tmp_path: Path) -> None:
    """As buildah numbers stages and steps, without the text of the command."""
    path = tmp_path / "webhook.log"
    path.write_text(log)

    assert expected == last_step(path)


def test_build_that_has_not_begun_has_no_step(tmp_path: Path) -> None:
    """It waits for a processor."""
    assert "" == last_step(tmp_path / "webhook.log")
