"""
The keys of images, and the consistency of Dockerfiles and locks. Needs no root, and builds nothing.
"""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from bootstrap import ROOT
from image.base import BUILD, RUNTIME
from image.catalogue import ARCHES, DOCKERFILES, OUR_ARCH, bases, wanted
from image.recipe import Recipe

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
    """Commit all files."""
    author = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.com"]
    for command in (["init", "--quiet"], ["add", "."], [*author, "commit", "--quiet", "--message", "A change"]):
        subprocess.run(["git", "-C", str(checkout), *command], check=True)


def test_inputs_are_the_files_that_the_dockerfile_uses(checkout: Path) -> None:
    """Mounts of a step are inputs, and copies from other stages are not."""
    assert [".dockerignore", "Dockerfile", "prepare.sh", "src"] == a_recipe(checkout).inputs()


@pytest.mark.parametrize("name", ["src/kept", "prepare.sh", "Dockerfile", ".dockerignore", "src/new"])
def test_changed_input_makes_a_new_key(checkout: Path, name: str) -> None:
    """Everything that can change the image is in its key."""
    before = a_recipe(checkout).key()

    with (checkout / name).open("a") as file:
        file.write("\nafter")

    assert before != a_recipe(checkout).key()


@pytest.mark.parametrize("name", ["other", "src/tests/ignored", "src/trace.log"])
def test_other_changes_keep_the_key(checkout: Path, name: str) -> None:
    """Files that are not in the image do not cause a build."""
    before = a_recipe(checkout).key()

    (checkout / name).write_text("after")

    assert before == a_recipe(checkout).key()


@pytest.mark.parametrize("folder", ["build/lib", "service.egg-info"])
def test_what_pip_leaves_in_a_package_keeps_the_key(checkout: Path, folder: str) -> None:
    """`pip install` in a checkout writes these; modules that are gone since would get into the image."""
    shutil.copy(ROOT / ".dockerignore", checkout)
    before = a_recipe(checkout).key()

    (checkout / "src" / folder).mkdir(parents=True)
    (checkout / "src" / folder / "old.py").write_text("left")

    assert before == a_recipe(checkout).key()


@pytest.mark.parametrize(
    "changed", [{"version": "2"}, {"base": "other"}, {"arch": "arm64"}], ids=["version", "base", "arch"]
)
def test_version_base_and_arch_are_in_the_key(checkout: Path, changed: dict[str, str]) -> None:
    """The same files with another version, base or architecture are another image."""
    assert a_recipe(checkout).key() != a_recipe(checkout, **changed).key()


def test_tag_does_not_change_the_key() -> None:
    """A commit that does not change an image reuses it, with any tag."""
    one, other = (wanted("webhook", ROOT, tag) for tag in ("1.0.0", "previous"))

    assert ("localhost/hami/webhook:1.0.0", "localhost/hami/webhook:previous") == (one.reference, other.reference)
    assert one.key == other.key


def test_key_is_the_same_in_another_checkout(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """An image of one checkout is used for the other."""
    commit(checkout)
    other = tmp_path_factory.mktemp("clone")
    subprocess.run(["git", "clone", "--quiet", str(checkout), str(other)], check=True)

    assert a_recipe(checkout).key() == a_recipe(other).key()


@pytest.mark.parametrize(("name", "is_kept"), [("other", True), ("src/tests/ignored", True), ("src/kept", False)])
def test_revision_is_the_last_commit_that_changed_the_image(checkout: Path, name: str, is_kept: bool) -> None:
    """A commit to ignored files keeps the labels, and so the image."""
    commit(checkout)
    before = a_recipe(checkout).arguments()["REVISION"]

    (checkout / name).write_text("after")
    commit(checkout)

    assert is_kept == (before == a_recipe(checkout).arguments()["REVISION"])


@pytest.mark.parametrize(("name", "is_dirty"), [("other", False), ("src/tests/new", False), ("src/kept", True)])
def test_uncommitted_change_is_in_the_revision(checkout: Path, name: str, is_dirty: bool) -> None:
    """Such an image is marked as dirty."""
    commit(checkout)

    (checkout / name).write_text("after")

    assert is_dirty == a_recipe(checkout).arguments()["REVISION"].endswith("-dirty")


def test_file_that_becomes_executable_makes_a_new_key(checkout: Path) -> None:
    """The mode is copied too."""
    before = a_recipe(checkout).key()

    (checkout / "src/kept").chmod(0o755)

    assert before != a_recipe(checkout).key()


@pytest.mark.parametrize("name", DOCKERFILES)
def test_dockerfile_uses_the_given_bases(name: str) -> None:
    """With another argument name, the build would pull from a registry."""
    declared = re.findall(r"^ARG (\w+)=", (ROOT / DOCKERFILES[name]).read_text(), re.MULTILINE)

    assert list(bases(name, OUR_ARCH)) == declared


@pytest.mark.parametrize("arch", ARCHES.values())
def test_only_the_library_is_cross_compiled(arch: str) -> None:
    """An emulated compiler is very slow. pip is emulated, because the architecture decides what it installs."""
    expected = {"PYTHON_IMAGE": (RUNTIME, arch), "BUILD_IMAGE": (BUILD, arch), "LIBRARY_IMAGE": (BUILD, OUR_ARCH)}

    assert expected == bases("device-plugin", arch)


def test_every_dockerfile_has_the_same_pinned_base() -> None:
    """A tag can move, and a digest cannot."""
    bases = {
        re.findall(r"^ARG PYTHON_IMAGE=(.*)$", (ROOT / path).read_text(), re.MULTILINE)[0]
        for path in DOCKERFILES.values()
    }

    assert 1 == len(bases)
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", bases.pop())


@pytest.mark.parametrize("service", SERVICES)
def test_lock_of_an_image_has_all_dependencies(service: str) -> None:
    """A dependency that is missing in the lock would be missing in the image only."""
    lock = (ROOT / f"requirements/{service}.lock").read_text()
    project = tomllib.loads((ROOT / f"services/{service}/pyproject.toml").read_text())["project"]

    declared = {Requirement(line).name.lower() for line in project["dependencies"]} - {"hamicommon"}

    assert declared <= set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE))


@pytest.mark.parametrize("name", [*SERVICES, "workloads", "setuptools"])
def test_image_locks_have_the_versions_of_the_tests(name: str) -> None:
    """Every package of a run-time lock is in the lock of the checkout, with version and hashes."""
    checkout, image = (
        re.sub(r" ; .*(?= \\$)", "", (ROOT / f"requirements/{lock}.lock").read_text(), flags=re.MULTILINE)
        for lock in ("dev", name)
    )
    packages = re.split(r"\n(?=\S)", image.rstrip("\n"))

    assert [] == [package.split()[0] for package in packages if package not in checkout]


@pytest.mark.parametrize("name", DOCKERFILES)
def test_dockerfile_gives_its_last_stage_the_labels(name: str) -> None:
    """The script of that stage checks them."""
    stage = (ROOT / DOCKERFILES[name]).read_text().rpartition("\nFROM ")[2]
    before = stage.partition("\nRUN ")[0].splitlines()

    assert ["ARG VERSION", "ARG REVISION", "ARG CREATED"] == before[1:]
    assert "/mnt/prepare.sh" in stage


@pytest.mark.parametrize("lacking", ["VERSION", "REVISION", "CREATED"])
def test_image_without_a_label_is_not_built(lacking: str, tmp_path: Path) -> None:
    """By any builder. The PATH is empty, so nothing but the check can run here."""
    given = {name: "1" for name in ("VERSION", "REVISION", "CREATED") if name != lacking} | {"PATH": str(tmp_path)}

    done = subprocess.run(
        ["/bin/sh", str(ROOT / "services/prepare.sh")], env=given, capture_output=True, text=True, check=False
    )

    assert done.returncode != 0
    assert f"{lacking}: is empty: give --build-arg" in done.stderr


def test_checkout_without_history_says_so(checkout: Path) -> None:
    """The files of an archive have no commit, and are built nevertheless."""
    arguments = a_recipe(checkout).arguments()

    assert ("unknown", "2025") == (arguments["REVISION"], arguments["CREATED"][:4])
