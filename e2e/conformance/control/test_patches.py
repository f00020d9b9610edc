"""
Patches: merge, strategic merge and JSON patch.
"""

from typing import Any

import pytest

from conformance.peers.objects import Api, a_pod, error_of

RFC_6902: list[tuple[str, Any, Any, Any]] = [
    ("add", {"foo": "bar"}, [{"op": "add", "path": "/data/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
    ("remove", {"a": "1", "b": "2"}, [{"op": "remove", "path": "/data/a"}], {"b": "2"}),
    ("replace of nothing", {"a": "1"}, [{"op": "replace", "path": "/data/b", "value": "2"}], {"a": "1", "b": "2"}),
    ("replace", {"a": "1"}, [{"op": "replace", "path": "/data/a", "value": "2"}], {"a": "2"}),
    ("move", {"a": "1"}, [{"op": "move", "from": "/data/a", "path": "/data/b"}], {"b": "1"}),
    ("copy", {"a": "1"}, [{"op": "copy", "from": "/data/a", "path": "/data/b"}], {"a": "1", "b": "1"}),
    (
        "test",
        {"a": "1"},
        [{"op": "test", "path": "/data/a", "value": "1"}, {"op": "replace", "path": "/data/a", "value": "2"}],
        {"a": "2"},
    ),
]


@pytest.mark.parametrize(("data", "patch", "expected"), [row[1:] for row in RFC_6902], ids=[row[0] for row in RFC_6902])
async def test_json_patch(api: Api, data: Any, patch: Any, expected: Any) -> None:
    """A JSON patch follows RFC 6902, except that `replace` of a missing member adds it."""
    await api.create(api.config_maps, {"metadata": {"name": "a"}, "data": data})

    assert expected == (await api.patch(f"{api.config_maps}/a", patch, "json"))["data"]


async def test_json_patch_of_escaped_keys(api: Api) -> None:
    """In a JSON pointer, ~1 is the slash in an annotation's key."""
    await api.create(api.config_maps, {"metadata": {"name": "a", "annotations": {"x.y/z": "1"}}})

    patch = [{"op": "replace", "path": "/metadata/annotations/x.y~1z", "value": "2"}]

    assert {"x.y/z": "2"} == (await api.patch(f"{api.config_maps}/a", patch, "json"))["metadata"]["annotations"]


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/data/b"},
        {"op": "replace", "path": "/none/b", "value": "1"},
        {"op": "add", "path": "/none/b", "value": "1"},
        {"op": "test", "path": "/data/a", "value": "other"},
        {"op": "move", "from": "/data/b", "path": "/data/c"},
    ],
)
async def test_json_patch_that_does_not_fit(api: Api, operation: Any) -> None:
    """A JSON patch that does not fit the object, also by a failed `test`, is rejected and changes nothing."""
    old = await api.create(api.config_maps, {"metadata": {"name": "a"}, "data": {"a": "1"}})
    change = {"op": "add", "path": "/data/new", "value": "1"}

    error = await error_of(api.patch(f"{api.config_maps}/a", [change, operation], "json"))

    assert (422, "Invalid") == (error.status, error.reason)
    assert old == await api.get(f"{api.config_maps}/a")


async def test_merge_patch(api: Api) -> None:
    """A merge patch merges objects, removes null members and replaces lists."""
    metadata = {"name": "p", "annotations": {"a": "1", "b": "2"}, "finalizers": ["x.y/a"]}
    await api.create(api.pods, a_pod(metadata=metadata))

    patch = {"metadata": {"annotations": {"a": None, "c": "3", "d": None}, "finalizers": ["x.y/b"]}}
    pod = await api.patch(f"{api.pods}/p", patch)

    assert ({"b": "2", "c": "3"}, ["x.y/b"]) == (pod["metadata"]["annotations"], pod["metadata"]["finalizers"])


async def test_last_annotation_removed(api: Api) -> None:
    """If a patch removes the last annotation of an object, it has no annotations."""
    await api.create(api.config_maps, {"metadata": {"name": "a", "annotations": {"a": "1"}}})

    found = await api.patch(f"{api.config_maps}/a", {"metadata": {"annotations": {"a": None}}})

    assert "annotations" not in found["metadata"]


async def test_strategic_patch_of_containers(api: Api) -> None:
    """A strategic patch finds a container by its name, and does not change the others."""
    containers = [{"name": "a", "image": "i:1"}, {"name": "b", "image": "j:1"}]
    await api.create_pod(containers=containers)

    pod = await api.patch(f"{api.pods}/p", {"spec": {"containers": [{"name": "b", "image": "j:2"}]}}, "strategic")

    assert ["i:1", "j:2"] == [container["image"] for container in pod["spec"]["containers"]]


async def test_strategic_patch_of_conditions(api: Api) -> None:
    """A strategic patch of one condition keeps the conditions of other writers."""
    await api.create_pod()
    path = f"{api.pods}/p/status"
    for kind, status in (("x.y/A", "False"), ("x.y/B", "True"), ("x.y/A", "True")):
        condition = {"type": kind, "status": status}
        await api.patch(path, {"status": {"conditions": [condition]}}, "strategic")

    found = {condition["type"]: condition["status"] for condition in (await api.pod())["status"]["conditions"]}

    assert {"x.y/A": "True", "x.y/B": "True"} == found


async def test_strategic_patch_replaces_tolerations(api: Api) -> None:
    """A strategic patch replaces the list of tolerations, which is rejected because tolerations may only be added."""
    pod = await api.create_pod(tolerations=[{"key": "a", "operator": "Exists"}])
    path, more = f"{api.pods}/p", {"key": "b", "operator": "Exists"}

    refused = await error_of(api.patch(path, {"spec": {"tolerations": [more]}}, "strategic"))
    added = await api.patch(path, {"spec": {"tolerations": [*pod["spec"]["tolerations"], more]}}, "strategic")

    assert 422 == refused.status
    assert more == added["spec"]["tolerations"][-1]


async def test_strategic_directives(api: Api) -> None:
    """A strategic patch obeys `$patch: delete` and `$deleteFromPrimitiveList`, and merges finalizers."""
    await api.create(api.pods, a_pod(metadata={"finalizers": ["x.y/a", "x.y/b"]}, volumes=[{"name": "v"}]))
    path = f"{api.pods}/p"
    for kind in ("x.y/A", "x.y/B"):
        await api.patch(f"{path}/status", {"status": {"conditions": [{"type": kind, "status": "True"}]}}, "strategic")

    gone = {"status": {"conditions": [{"type": "x.y/A", "$patch": "delete"}]}}
    pod = await api.patch(f"{path}/status", gone, "strategic")
    assert ["x.y/B"] == [condition["type"] for condition in pod["status"]["conditions"]]
    pod = await api.patch(path, {"metadata": {"finalizers": ["x.y/c"]}}, "strategic")
    assert {"x.y/a", "x.y/b", "x.y/c"} == set(pod["metadata"]["finalizers"])
    pod = await api.patch(path, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.y/a", "x.y/c"]}}, "strategic")
    assert ["x.y/b"] == pod["metadata"]["finalizers"]


async def test_patch_of_an_unknown_form(api: Api) -> None:
    """A patch of an unknown content type is a 415, and a patch of a missing object a 404."""
    form = await error_of(api.request("PATCH", f"{api.config_maps}/a", {}, "application/json"))
    absent = await error_of(api.patch(f"{api.config_maps}/a", {}))

    assert (415, "UnsupportedMediaType") == (form.status, form.reason)
    assert (404, "NotFound") == (absent.status, absent.reason)
