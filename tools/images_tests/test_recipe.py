"""
What an image's key stands for, and what the Dockerfiles and locks have in common: needs no root and builds nothing.
"""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from bootstrap import ROOT
from image.base import BUILD, RUNTIME
from image.recipe import Recipe
from images import ARCHES, DOCKERFILES, OUR_ARCH, bases, wanted

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


def a_recipe(checkout: Path, version: str = "1", base: str = "base", arch: str = "amd64") -> Recipe:
    """Return the recipe of the checkout's image."""
    return Recipe("it", version, checkout, "Dockerfile", (("BASE", base),), arch)


def commit(checkout: Path) -> None:
    """Commit all there is."""
    author = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.com"]
    for command in (["init", "--quiet"], ["add", "."], [*author, "commit", "--quiet", "--message", "A change"]):
        subprocess.run(["git", "-C", str(checkout), *command], check=True)


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


@pytest.mark.parametrize(
    "changed", [{"version": "2"}, {"base": "other"}, {"arch": "arm64"}], ids=["version", "base", "arch"]
)
def test_version_base_and_arch_are_in_the_key(checkout: Path, changed: dict[str, str]) -> None:
    """The same files with another version, on another base, or for other machines are another image."""
    assert a_recipe(checkout).key() != a_recipe(checkout, **changed).key()


def test_tag_is_a_name_and_keeps_the_key() -> None:
    """The image of a commit that changed nothing of it is the one before, whatever it is called."""
    one, other = (wanted("webhook", ROOT, tag) for tag in ("1.0.0", "previous"))

    assert ("localhost/hami/webhook:1.0.0", "localhost/hami/webhook:previous") == (one.reference, other.reference)
    assert one.key == other.key


def test_key_is_the_same_in_another_checkout(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What was built of one is not built again of the other."""
    commit(checkout)
    other = tmp_path_factory.mktemp("clone")
    subprocess.run(["git", "clone", "--quiet", str(checkout), str(other)], check=True)

    assert a_recipe(checkout).key() == a_recipe(other).key()


@pytest.mark.parametrize(("name", "is_kept"), [("other", True), ("src/tests/ignored", True), ("src/kept", False)])
def test_revision_is_the_last_commit_that_touched_the_image(checkout: Path, name: str, is_kept: bool) -> None:
    """A commit to what no build sees leaves the labels, and so the image, as they are."""
    commit(checkout)
    before = a_recipe(checkout).arguments()["REVISION"]

    (checkout / name).write_text("after")
    commit(checkout)

    assert is_kept == (before == a_recipe(checkout).arguments()["REVISION"])


@pytest.mark.parametrize(("name", "is_dirty"), [("other", False), ("src/tests/new", False), ("src/kept", True)])
def test_change_that_is_not_committed_shows_in_the_revision(checkout: Path, name: str, is_dirty: bool) -> None:
    """An image that no commit describes says so."""
    commit(checkout)

    (checkout / name).write_text("after")

    assert is_dirty == a_recipe(checkout).arguments()["REVISION"].endswith("-dirty")


def test_file_that_becomes_executable_makes_a_new_key(checkout: Path) -> None:
    """The mode is copied too."""
    before = a_recipe(checkout).key()

    (checkout / "src/kept").chmod(0o755)

    assert before != a_recipe(checkout).key()


@pytest.mark.parametrize("name", DOCKERFILES)
def test_dockerfile_takes_the_bases_it_is_given(name: str) -> None:
    """One that is given under another name is not taken, and a registry's is asked for."""
    declared = re.findall(r"^ARG (\w+)=", (ROOT / DOCKERFILES[name]).read_text(), re.MULTILINE)

    assert list(bases(name, OUR_ARCH)) == declared


@pytest.mark.parametrize("arch", ARCHES.values())
def test_library_alone_is_built_on_this_machine_for_any(arch: str) -> None:
    """A compiler that is emulated takes very long; pip is emulated, since it asks the machine what to install."""
    expected = {"PYTHON_IMAGE": (RUNTIME, arch), "BUILD_IMAGE": (BUILD, arch), "LIBRARY_IMAGE": (BUILD, OUR_ARCH)}

    assert expected == bases("device-plugin", arch)


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
