"""CDI spec files are read and rejected like in containerd."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from minicluster.kubelet.runtime.cdi import CdiCache, CdiError, Edits, RuntimePanicError

DEVICE = "example.test/gpu=dev-0"


def a_spec(kind: str = "example.test/gpu", device: str = "dev-0", value: str = "1", **edits: Any) -> dict[str, Any]:
    """Return a spec of one device that sets `VALUE`."""
    content = {"env": [f"VALUE={value}"], **edits}
    return {"cdiVersion": "0.6.0", "kind": kind, "devices": [{"name": device, "containerEdits": content}]}


def write_by_rename(directory: Path, spec: dict[str, Any], name: str = "a.json", through: Path | None = None) -> None:
    """Write a spec file by renaming it from *through*, the same directory unless given."""
    draft = (through or directory) / f".{name}.new"
    draft.write_text(json.dumps(spec))
    draft.rename(directory / name)


@pytest.fixture
async def cache(tmp_path: Path) -> AsyncIterator[CdiCache]:
    """A cache of an empty directory."""
    cache = CdiCache(tmp_path / "cdi")
    cache.start()
    yield cache
    cache.close()


def value_of(cache: CdiCache) -> str:
    """Return the `VALUE` that the test device sets now."""
    return dict(cache.inject([DEVICE]).environment)["VALUE"]


async def test_rename_within_the_directory_is_noticed(cache: CdiCache) -> None:
    """The way a plugin should write: the very next container has the new contents."""
    write_by_rename(cache.directory, a_spec(value="1"))
    assert "1" == value_of(cache)

    write_by_rename(cache.directory, a_spec(value="2"))
    assert "2" == value_of(cache)


async def test_plain_write_is_noticed(cache: CdiCache) -> None:
    """Writing the file in place works too."""
    (cache.directory / "a.json").write_text(json.dumps(a_spec(value="1")))

    assert "1" == value_of(cache)


async def test_rename_from_another_directory_leaves_the_old_contents(cache: CdiCache, tmp_path: Path) -> None:
    """Such a rename is only a Create event, which containerd ignores: the container silently gets what was there."""
    write_by_rename(cache.directory, a_spec(value="old"))
    assert "old" == value_of(cache)
    write_by_rename(cache.directory, a_spec(value="new"), through=tmp_path)
    await asyncio.sleep(0.1)

    assert "old" == value_of(cache)


async def test_any_noticed_change_reads_the_whole_directory(cache: CdiCache, tmp_path: Path) -> None:
    """A file that came unnoticed is seen with the next change of any other."""
    write_by_rename(cache.directory, a_spec(value="new"), through=tmp_path)
    write_by_rename(cache.directory, a_spec(device="other"), name="b.json")

    assert "new" == value_of(cache)


async def test_removed_spec_is_unresolvable(cache: CdiCache) -> None:
    """The message is the runtime's, with every missing device."""
    write_by_rename(cache.directory, a_spec())
    (cache.directory / "a.json").unlink()

    with pytest.raises(CdiError) as caught:
        cache.inject([DEVICE, "example.test/gpu=x"])

    expected = "CDI device injection failed: unresolvable CDI devices example.test/gpu=dev-0, example.test/gpu=x"
    assert expected == str(caught.value)


async def test_device_in_two_files_is_used_from_neither(cache: CdiCache) -> None:
    """It is a conflict."""
    write_by_rename(cache.directory, a_spec(), name="a.json")
    write_by_rename(cache.directory, a_spec(), name="b.json")

    with pytest.raises(CdiError, match="unresolvable"):
        cache.inject([DEVICE])


async def test_edits_of_the_spec_come_once_and_before_those_of_its_devices(cache: CdiCache) -> None:
    """Environment and mounts keep that order."""
    spec = a_spec()
    spec["devices"].append({"name": "dev-1", "containerEdits": {"env": ["VALUE=2"]}})
    mount = {"hostPath": "/a", "containerPath": "/b", "options": ["ro", "bind"]}
    spec["containerEdits"] = {"env": ["ALL=1"], "mounts": [mount], "deviceNodes": [{"path": "/dev/null"}]}
    write_by_rename(cache.directory, spec)

    edits = cache.inject([DEVICE, "example.test/gpu=dev-1"])

    mounts = (("/b", "/a", True), ("/dev/null", "/dev/null", False))
    assert Edits((("ALL", "1"), ("VALUE", "1"), ("VALUE", "2")), mounts) == edits


async def test_of_hooks_only_modes_are_set(cache: CdiCache) -> None:
    """Another hook would change the machine, whose root the containers have."""
    hooks = [
        {"hookName": "createContainer", "path": "/h", "args": ["h", "chmod", "--mode", "777", "--path", "/p"]},
        {"hookName": "createContainer", "path": "/h", "args": ["h", "update-ldcache", "--folder", "/usr/lib"]},
        {"hookName": "createRuntime", "path": "/bin/true"},
    ]
    write_by_rename(cache.directory, a_spec(hooks=hooks))

    assert (("/p", 0o777),) == cache.inject([DEVICE]).modes


@pytest.mark.parametrize("kind", ["x/gpu", "example.test/x"])
async def test_one_character_vendor_or_class_ends_the_runtime(cache: CdiCache, kind: str) -> None:
    """In any file, for every container from then on, also once the file is gone."""
    write_by_rename(cache.directory, a_spec())
    write_by_rename(cache.directory, a_spec(kind=kind), name="b.json")
    with pytest.raises(RuntimePanicError, match=f"b.json: kind '{kind}'"):
        cache.inject([])
    (cache.directory / "b.json").unlink()

    with pytest.raises(RuntimePanicError):
        cache.inject([])


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (a_spec() | {"cdiVersion": "9"}, "cdiVersion '9'"),
        (a_spec(kind="gpu"), "kind 'gpu'"),
        (a_spec(kind="1example/gpu"), "kind '1example/gpu'"),
        (a_spec(device="a/b"), "device name 'a/b'"),
        (a_spec() | {"devices": []}, "no devices"),
        (a_spec() | {"devices": [{"name": "d", "containerEdits": {}}]}, "empty device edits"),
        (a_spec(env=["VALUE"]), "invalid environment variable 'VALUE'"),
        (a_spec(mounts=[{"hostPath": "/a"}]), "containerPath must not be empty"),
        ({"kind": ["x"], "cdiVersion": "0.6.0"}, "kind"),
    ],
)
async def test_invalid_spec_is_ignored_and_named(cache: CdiCache, spec: dict[str, Any], problem: str) -> None:
    """The other files are used."""
    write_by_rename(cache.directory, spec, name="bad.json")
    write_by_rename(cache.directory, a_spec(), name="good.json")

    assert "1" == value_of(cache)
    assert problem in cache.problems["bad.json"]


async def test_files_with_other_suffixes_are_not_read(cache: CdiCache) -> None:
    """A plugin may write temporary files in the same directory."""
    (cache.directory / "draft.tmp").write_text("{")
    write_by_rename(cache.directory, a_spec())

    assert {} == cache.problems
    assert "1" == value_of(cache)
