"""
When an image is built again, and what the Dockerfiles and locks have in common: needs no root and builds nothing.
"""

import re
import tomllib
from pathlib import Path

import pytest
from bootstrap import ROOT
from image.recipe import Recipe
from images import DOCKERFILES
from packaging.requirements import Requirement

SERVICES = ("webhook", "scheduler", "device-plugin", "monitor")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one Dockerfile."""
    for name in ("src/kept", "src/tests/ignored", "other"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before")
    (tmp_path / "prepare.sh").write_text("before")
    (tmp_path / ".dockerignore").write_text("src/tests\n**/*.log\n")
    (tmp_path / "Dockerfile").write_text(
        "FROM base\nCOPY src src\nCOPY --from=base /etc /etc\nRUN --mount=type=bind,source=prepare.sh,target=/p sh /p\n"
    )
    return tmp_path


def a_recipe(checkout: Path, tag: str = "1", base: str = "base") -> Recipe:
    """Return the recipe of the checkout's image."""
    return Recipe("it", f"localhost/it:{tag}", checkout, "Dockerfile", (("BASE", base),))


def test_inputs_are_what_the_dockerfile_takes_from_the_checkout(checkout: Path) -> None:
    """Copies from other stages are not the checkout's, what a step mounts is."""
    assert [".dockerignore", "Dockerfile", "prepare.sh", "src"] == a_recipe(checkout).inputs()


@pytest.mark.parametrize("name", ["src/kept", "prepare.sh", "Dockerfile", ".dockerignore", "src/new"])
def test_changed_input_makes_a_new_key(checkout: Path, name: str) -> None:
    """Whatever can change the image is in its key."""
    before = a_recipe(checkout).key()

    with (checkout / name).open("a") as file:
        file.write("\nafter")

    assert before != a_recipe(checkout).key()


@pytest.mark.parametrize("name", ["other", "src/tests/ignored", "src/trace.log"])
def test_change_elsewhere_keeps_the_key(checkout: Path, name: str) -> None:
    """What does not reach the image does not build it again."""
    before = a_recipe(checkout).key()

    (checkout / name).write_text("after")

    assert before == a_recipe(checkout).key()


@pytest.mark.parametrize("changed", [{"tag": "2"}, {"base": "other"}], ids=["tag", "base"])
def test_tag_and_base_are_in_the_key(checkout: Path, changed: dict[str, str]) -> None:
    """The same files under another name, or on another base, are another image."""
    assert a_recipe(checkout).key() != a_recipe(checkout, **changed).key()


def test_file_that_becomes_executable_makes_a_new_key(checkout: Path) -> None:
    """The mode is copied too."""
    before = a_recipe(checkout).key()

    (checkout / "src/kept").chmod(0o755)

    assert before != a_recipe(checkout).key()


def test_every_dockerfile_stands_on_the_same_pinned_base() -> None:
    """A tag can be moved; a digest names the same bytes for ever."""
    bases = {
        re.findall(r"^ARG PYTHON_IMAGE=(.*)$", (ROOT / path).read_text(), re.MULTILINE)[0]
        for path in DOCKERFILES.values()
    }

    assert 1 == len(bases)
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", bases.pop())


@pytest.mark.parametrize("service", SERVICES)
def test_what_an_image_takes_in_is_named_by_its_lock(service: str) -> None:
    """A dependency that a service declares and its lock lacks would be missing in the image alone."""
    lock = (ROOT / f"requirements/{service}.lock").read_text()
    project = tomllib.loads((ROOT / f"services/{service}/pyproject.toml").read_text())["project"]

    declared = {Requirement(line).name.lower() for line in project["dependencies"]} - {"hamicommon"}

    assert declared <= set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE))


@pytest.mark.parametrize("name", [*SERVICES, "workloads", "setuptools"])
def test_image_locks_hold_what_the_tests_ran_with(name: str) -> None:
    """Every line of a run-time lock, hashes and all, stands in the lock of the checkout."""
    checkout, image = ((ROOT / f"requirements/{lock}.lock").read_text() for lock in ("dev", name))
    packages = re.split(r"\n(?=\S)", image.rstrip("\n"))

    assert [] == [package.split()[0] for package in packages if package not in checkout]
