"""
The one file of the client holds what the client needs, in the versions that the tests ran with.
"""

import re
import tomllib

from bootstrap import REQUIREMENTS, ROOT


def locked(name: str) -> dict[str, str]:
    """Return the version of each package in a lock."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (REQUIREMENTS / f"{name}.lock").read_text(), re.MULTILINE))


def test_lock_of_the_client_has_everything_that_it_asks_for() -> None:
    """Its own packages are added from the checkout."""
    project = tomllib.loads((ROOT / "clients/kubectl-hami/pyproject.toml").read_text())["project"]
    asked = {re.split(r"[^\w-]", text)[0].lower() for text in project["dependencies"]} - {"hamicommon"}

    assert set() == asked - locked("kubectl-hami").keys()


def test_client_has_the_versions_that_the_tests_run_with() -> None:
    """Otherwise a file could fail where every test passed."""
    tested = locked("dev")

    differing = {name: version for name, version in locked("kubectl-hami").items() if tested.get(name) != version}

    assert {} == differing
