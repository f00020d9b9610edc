"""
Owners of container directories, choice of the region file, and deletion.
"""

import math
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_monitor.decide.containers import (
    ContainerDirectory,
    ContainerKey,
    PodCache,
    Refusal,
    abandoned,
    choose_region_file,
    parse_directory_name,
    without_pod,
)

GRACE_SECONDS = 300.0
NOW = 1_000_000.0


def a_directory(pod_uid: str = "gone", *, age_seconds: float = 301.0) -> dict[ContainerKey, float]:
    """Return when the directory of a container of *pod_uid* was changed."""
    return {ContainerKey(pod_uid, "main"): NOW - age_seconds}


def a_cache(*uids: str, is_synced: bool = True, age_seconds: float = 1.0) -> PodCache:
    """Return a cache that knows the Pods *uids*."""
    return PodCache(frozenset(uids), is_synced, age_seconds)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("uid_main", ContainerKey("uid", "main"), id="plain"),
        pytest.param("uid_my_main", ContainerKey("uid", "my_main"), id="first-underscore-separates"),
        pytest.param("uid", None, id="no-underscore"),
        pytest.param("_main", None, id="no-uid"),
        pytest.param("uid_", None, id="no-container"),
        pytest.param("_", None, id="nothing"),
        pytest.param("", None, id="empty"),
    ],
)
def test_directory_name_gives_pod_and_container(name: str, expected: ContainerKey | None) -> None:
    """Both parts are required; the first underscore separates them."""
    assert expected == parse_directory_name(name)


@given(st.uuids(), st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True))
@pytest.mark.property
def test_every_container_finds_its_own_directory(uid: UUID, container: str) -> None:
    """The device plugin's name is read back as the same key."""
    key = ContainerKey(str(uid), container)

    assert key == parse_directory_name(str(key))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param([], None, id="empty"),
        pytest.param(["libvgpu.so"], None, id="library-only"),
        pytest.param(["a.cache"], "a.cache", id="region-only"),
        pytest.param(["libvgpu.so", "a.cache"], "a.cache", id="usual"),
        pytest.param([".cache"], ".cache", id="suffix-only"),
        pytest.param(["b.cache", "a.cache"], "a.cache", id="first-by-name"),
        pytest.param(["core.1", "notes.txt", "a.cache", "x.log"], "a.cache", id="other-files-do-not-count"),
        pytest.param(["libvgpu.so.cache"], None, id="library-by-any-name"),
        pytest.param(["libvgpu.so.cache", "z.cache"], "z.cache", id="library-with-region-suffix"),
        pytest.param(["region.dat"], None, id="other-suffix"),
        pytest.param(["a.cache", "b.cache", "libvgpu.so"], Refusal.TOO_MANY_FILES, id="two-regions"),
        pytest.param(["a.cache", "libvgpu.so", "libvgpu.so.1"], Refusal.TOO_MANY_FILES, id="two-libraries"),
    ],
)
def test_region_file_is_chosen_by_hamis_rule(names: list[str], expected: str | Refusal | None) -> None:
    """The first `*.cache` by name that is not the library; none if there are more than two candidates."""
    assert expected == choose_region_file(names)


@pytest.mark.parametrize(
    ("directory", "pods", "is_abandoned"),
    [
        pytest.param(a_directory(), a_cache(), True, id="unknown-pod-and-old"),
        pytest.param(a_directory("p"), a_cache("p"), False, id="living-pod"),
        pytest.param(a_directory("p", age_seconds=1e9), a_cache("p"), False, id="living-pod-any-age"),
        pytest.param(a_directory(age_seconds=300.0), a_cache(), False, id="exactly-the-grace"),
        pytest.param(a_directory(age_seconds=0.0), a_cache(), False, id="directory-before-its-pod-is-known"),
        pytest.param(a_directory(age_seconds=-60.0), a_cache(), False, id="clock-went-back"),
        pytest.param(a_directory(), a_cache(is_synced=False), False, id="never-listed"),
        pytest.param(
            a_directory(age_seconds=1e9),
            a_cache(is_synced=False, age_seconds=math.inf),
            False,
            id="api-down-from-start",
        ),
        pytest.param(a_directory(), a_cache(age_seconds=301.0), False, id="silent-since-before-the-directory"),
        pytest.param(
            a_directory(age_seconds=5000.0), a_cache(age_seconds=4999.0), True, id="spoke-after-the-directory"
        ),
    ],
)
def test_directory_goes_only_when_its_pod_is_surely_gone(
    directory: dict[ContainerKey, float], pods: PodCache, is_abandoned: bool
) -> None:
    """The API server confirmed after the last change that the Pod is unknown, and the grace time has passed."""
    expected = tuple(directory) if is_abandoned else ()

    assert expected == abandoned(directory, pods, NOW, GRACE_SECONDS)


def test_only_directories_without_a_pod_are_looked_at() -> None:
    """A round reads the age of those alone."""
    listed = [ContainerDirectory(ContainerKey(uid, "main")) for uid in ("living", "gone")]

    assert (ContainerKey("gone", "main"),) == without_pod(listed, a_cache("living"))


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(-1e4, 1e4)), max_size=8),
    st.sets(st.sampled_from("abcdef")),
    st.booleans(),
    st.floats(0, 1e4),
)
@pytest.mark.property
def test_living_pod_keeps_its_directory(
    directories: list[tuple[str, float]], living: set[str], is_synced: bool, age_seconds: float
) -> None:
    """No listing, age or silence of the API server deletes a known Pod's directory."""
    changed = {ContainerKey(uid, str(index)): NOW - age for index, (uid, age) in enumerate(directories)}

    gone = abandoned(changed, a_cache(*living, is_synced=is_synced, age_seconds=age_seconds), NOW, GRACE_SECONDS)

    assert set() == {key.pod_uid for key in gone} & living
    assert is_synced or gone == ()
