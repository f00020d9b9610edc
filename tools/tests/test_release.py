"""
A release is a commit, a tag and a CHANGELOG, once for each version of a part.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from bootstrap import ROOT
from image.catalogue import wanted
from publish.parts import CHART, PARTS, SERVICES, read_parts, version_of
from publish.release import ReleaseError, changed_since, git, newest, release, releases

COPIED = (
    ".dockerignore",
    "changelog.d/template.jinja",
    "towncrier.toml",
    "charts/hami/Chart.yaml",
    "charts/hami/parts.yaml",
    *(f"services/{name}/{file}" for name in SERVICES for file in ("Dockerfile", "pyproject.toml")),
)
SCHEDULER = PARTS["scheduler"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a change of each part, and without a release."""
    for name in COPIED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    for key, value in (("user.name", "Somebody"), ("user.email", "somebody@example.com")):
        git(tmp_path, "config", key, value)
    for part in (*SERVICES, CHART):
        change(tmp_path, part, "It starts.")
    return tmp_path


def change(checkout: Path, part: str, sentence: str, file: str = "src/main.py") -> None:
    """Commit a change of *part* with its fragment."""
    fragment, source = checkout / PARTS[part].fragments / "start.added.md", checkout / PARTS[part].folder / file
    for path in (fragment, source):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(sentence)
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", f"--message={part}: Change it")


def test_release_moves_the_changes_into_the_changelog(checkout: Path) -> None:
    """At the tag, the fragments are gone and the CHANGELOG has them under the version."""
    made = release("scheduler", "0.2.0", checkout)

    text = git(checkout, "show", f"{made.tag}:services/scheduler/CHANGELOG.md")

    assert "scheduler-v0.2.0" == made.tag
    assert "## 0.2.0 (" in text
    assert text.endswith("### Added\n\n- It starts.")
    assert not (checkout / SCHEDULER.fragments).exists()
    assert (checkout / PARTS["monitor"].fragments / "start.added.md").exists()


def test_version_of_the_tag_is_the_tag_of_the_image(checkout: Path) -> None:
    """After the release the tree builds images of another tag, so no tag ever has other bytes."""
    made = release("scheduler", "0.2.0", checkout)
    after = wanted("scheduler", checkout, None).reference
    git(checkout, "checkout", "--quiet", made.tag)

    assert ("localhost/hami/scheduler:0.2.0", "localhost/hami/scheduler:0.2.1-dev") == (
        wanted("scheduler", checkout, None).reference,
        after,
    )


def test_chart_of_the_tree_installs_the_versions_of_the_tree(checkout: Path) -> None:
    """Between releases too."""
    release("scheduler", "0.2.0", checkout)

    assert {name: version_of(PARTS[name], checkout) for name in SERVICES} == read_parts(checkout)


def test_chart_names_the_releases_that_it_was_tested_with(checkout: Path) -> None:
    """Its tag has their versions, and afterwards the tree's chart has the tree's."""
    for name in SERVICES:
        release(name, "0.2.0", checkout)
    release(CHART, "0.3.0", checkout)
    after = (version_of(PARTS[CHART], checkout), read_parts(checkout))
    git(checkout, "checkout", "--quiet", "chart-v0.3.0")

    assert ("0.3.0", dict.fromkeys(SERVICES, "0.2.0")) == (version_of(PARTS[CHART], checkout), read_parts(checkout))
    assert ("0.3.1-dev", dict.fromkeys(SERVICES, "0.2.1-dev")) == after


def test_chart_is_not_released_with_a_service_that_has_changed_since(checkout: Path) -> None:
    """Nobody could install what it was tested with."""
    for name in SERVICES:
        release(name, "0.2.0", checkout)
    change(checkout, "monitor", "It stops.")

    with pytest.raises(ReleaseError, match=r"monitor is not one: .*main\.py changed after monitor-v0\.2\.0"):
        release(CHART, "0.3.0", checkout)


def test_chart_is_not_released_before_its_services(checkout: Path) -> None:
    """There are no images for it."""
    with pytest.raises(ReleaseError, match="webhook is not one; release it first"):
        release(CHART, "0.3.0", checkout)


def test_release_is_found_without_tags(checkout: Path) -> None:
    """A clone may have none."""
    made = release("scheduler", "0.2.0", checkout)
    git(checkout, "tag", "--delete", made.tag)

    assert made == newest(SCHEDULER, checkout)
    assert [] == changed_since(made, checkout)


def test_releases_are_listed_newest_first(checkout: Path) -> None:
    """Those of this part alone."""
    first = release("scheduler", "0.2.0", checkout)
    release("monitor", "0.3.0", checkout)
    change(checkout, "scheduler", "It stops.")
    second = release("scheduler", "0.2.1", checkout)

    assert [second, first] == list(releases(SCHEDULER, checkout))


@pytest.mark.parametrize("version", ["0.2.0", "0.1.9"])
def test_version_is_released_once(checkout: Path, version: str) -> None:
    """The same version again, or an older one, would name other bytes."""
    release("scheduler", "0.2.0", checkout)
    change(checkout, "scheduler", "It stops.")

    with pytest.raises(ReleaseError, match=r"is not newer than scheduler-v0\.2\.0, and a version is released once"):
        release("scheduler", version, checkout)


def test_tag_of_another_history_is_not_moved(checkout: Path) -> None:
    """Somebody may have pulled its image."""
    git(checkout, "tag", "scheduler-v0.2.0", "HEAD^")

    with pytest.raises(ReleaseError, match=r"the tag scheduler-v0\.2\.0 exists"):
        release("scheduler", "0.2.0", checkout)


@pytest.mark.parametrize(
    ("part", "version", "message"),
    [
        ("extender", "0.2.0", "PART=extender is unknown; known are webhook, scheduler"),
        ("", "", "PART= is unknown"),
        ("kubectl-hami", "0.2.0", "PART=kubectl-hami is unknown"),
        ("scheduler", "v0.2.0", "VERSION=v0.2.0 is not three numbers, such as 0.2.0"),
        ("scheduler", "", "VERSION= is not three numbers"),
    ],
)
def test_wrong_request_is_refused(checkout: Path, part: str, version: str, message: str) -> None:
    """The message names what is known. A part whose folder is missing is unknown."""
    with pytest.raises(ReleaseError, match=message):
        release(part, version, checkout)


@pytest.mark.parametrize(
    ("path", "is_committed", "message"),
    [
        ("changelog.d/other.added.md", True, r"changelog\.d/other\.added\.md names no part: move it into"),
        ("services/scheduler/src/new.py", False, "there are changes that are not committed"),
    ],
)
def test_unfinished_checkout_is_refused(checkout: Path, path: str, is_committed: bool, message: str) -> None:
    """Nothing is changed."""
    (checkout / path).write_text("More.")
    if is_committed:
        git(checkout, "add", "--all")
        git(checkout, "commit", "--quiet", "--message=scheduler: Change it")
    before = git(checkout, "rev-parse", "HEAD")

    with pytest.raises(ReleaseError, match=message):
        release("scheduler", "0.2.0", checkout)

    assert before == git(checkout, "rev-parse", "HEAD")
    assert "" == git(checkout, "tag")


def test_part_without_changes_is_not_released(checkout: Path) -> None:
    """Its CHANGELOG would say nothing."""
    release("scheduler", "0.2.0", checkout)

    with pytest.raises(ReleaseError, match=r"changelog\.d/scheduler has no change"):
        release("scheduler", "0.3.0", checkout)
