"""
Objects: names, versions, preconditions, deletion and errors.
"""

import asyncio
from typing import Any

import pytest

from conformance.peers.objects import Api, a_node, a_pod, error_of, refusal_of
from minicluster.client import ApiError
from testbed.waiting import eventually

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def lease(api: Api) -> str:
    """Return the path of the namespace's Leases."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases"


async def test_created_object_gets_its_identity(api: Api) -> None:
    """A created object gets uid, time and a resourceVersion that increases over all resources."""
    first = await api.create(api.config_maps, {"metadata": {"name": "a"}})
    second = await api.create(lease(api), {"metadata": {"name": "a"}})

    assert {"uid", "creationTimestamp", "resourceVersion", "name", "namespace"} == set(first["metadata"])
    assert int(first["metadata"]["resourceVersion"]) < int(second["metadata"]["resourceVersion"])


async def test_create_errors(api: Api) -> None:
    """An invalid create is rejected with the code, reason and text that clients know."""
    await api.create(api.config_maps, {"metadata": {"name": "a"}})
    bad_name = await error_of(api.create(api.config_maps, {"metadata": {"name": "A_"}}))

    assert (409, "AlreadyExists", 'configmaps "a" already exists') == await refusal_of(
        api.create(api.config_maps, {"metadata": {"name": "a"}})
    )
    assert (404, "NotFound", 'namespaces "nope" not found') == await refusal_of(
        api.create("/api/v1/namespaces/nope/configmaps", {"metadata": {"name": "a"}})
    )
    assert (422, "Invalid") == (bad_name.status, bad_name.reason)
    assert bad_name.message.startswith(
        'ConfigMap "A_" is invalid: metadata.name: Invalid value: "A_": a lowercase RFC 1123 subdomain must consist of'
    )
    assert (500, "", "resourceVersion should not be set on objects to be created") == await refusal_of(
        api.create(api.config_maps, {"metadata": {"name": "b", "resourceVersion": "1"}})
    )


@pytest.mark.parametrize(
    ("method", "path", "body", "content_type", "expected"),
    [
        ("GET", "{maps}/x", None, "application/json", (404, 'configmaps "x" not found')),
        ("GET", "{leases}/x", None, "application/json", (404, 'leases.coordination.k8s.io "x" not found')),
        ("GET", "/api/v1/frobs", None, "application/json", (404, "the server could not find the requested resource")),
        ("POST", "/api/v1/pods", {}, "application/json", (405, "the server does not allow this method on")),
        ("PUT", "{maps}", {}, "application/json", (405, "the server does not allow this method on")),
        ("POST", "{maps}", {}, "text/plain", (415, "the body of the request was in an unknown format - accepted")),
        (
            "POST",
            "{maps}",
            {"kind": "Pod", "apiVersion": "v1"},
            "application/json",
            (400, 'Pod in version "v1" cannot be handled as a Co'),
        ),
        ("GET", "/api/v1/pods?labelSelector=a+in+b", None, "application/json", (400, "unable to parse requirement")),
        ("GET", "/api/v1/pods?fieldSelector=a%3Db", None, "application/json", (400, "field label not supported: a")),
        ("POST", "{maps}", [], "application/json", (400, "the object provided is unrecognized (must be of type Conf")),
    ],
)
async def test_invalid_requests(
    api: Api, method: str, path: str, body: Any, content_type: str, expected: tuple[int, str]
) -> None:
    """An invalid request of each kind is rejected with its code and text."""
    where = path.format(maps=api.config_maps, leases=lease(api))
    error = await error_of(api.request(method, where, body, content_type))

    assert expected == (error.status, error.message[: len(expected[1])])


async def test_old_version_is_a_conflict(api: Api) -> None:
    """A PUT or a patch with an old resourceVersion is a 409 Conflict."""
    path = f"{api.config_maps}/a"
    old = await api.create(api.config_maps, {"metadata": {"name": "a"}, "data": {"k": "1"}})
    await api.replace(path, {**old, "data": {"k": "2"}})

    refused = (409, "Conflict", f'Operation cannot be fulfilled on configmaps "a": {MODIFIED}')
    assert refused == await refusal_of(api.replace(path, {**old, "data": {"k": "3"}}))
    version = old["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version, "annotations": {"a": "b"}}}
    assert refused == await refusal_of(api.patch(path, patch))


@pytest.mark.other_in("1.33", "the same rejection with another text")
async def test_update_without_a_version(api: Api) -> None:
    """An update without a resourceVersion wins, except for a Lease, which is rejected."""
    await api.create(api.config_maps, {"metadata": {"name": "a"}})
    await api.create(lease(api), {"metadata": {"name": "a"}, "spec": {}})

    written = await api.replace(f"{api.config_maps}/a", {"metadata": {"name": "a"}, "data": {"k": "v"}})
    refused = await error_of(api.replace(f"{lease(api)}/a", {"metadata": {"name": "a"}, "spec": {}}))

    assert {"k": "v"} == written["data"]
    assert 422 == refused.status
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in refused.message


async def test_writing_what_is_there(api: Api) -> None:
    """A write without a change writes nothing, so the resourceVersion stays."""
    old = await api.create(api.config_maps, {"metadata": {"name": "a", "labels": {"x": "y"}}})

    assert old == await api.patch(f"{api.config_maps}/a", {"metadata": {"labels": {"x": "y"}}})
    assert old == await api.replace(f"{api.config_maps}/a", old)


async def test_concurrent_patches(api: Api) -> None:
    """Simultaneous patches all take effect, because each is applied to the object as it is at its write."""
    await api.create(api.config_maps, {"metadata": {"name": "a"}})

    await asyncio.gather(*(api.patch(f"{api.config_maps}/a", {"data": {f"k{i}": "v"}}) for i in range(4)))

    assert 4 == len((await api.get(f"{api.config_maps}/a"))["data"])


async def test_foreign_uid(api: Api) -> None:
    """Fields that the server sets cannot be written, and a wrong uid is a 409 in a PUT and a 422 in a patch."""
    path = f"{api.config_maps}/a"
    old = await api.create(api.config_maps, {"metadata": {"name": "a"}})

    new = await api.patch(path, {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}})
    put = await error_of(api.replace(path, {"metadata": {"name": "a", "uid": "other"}}))
    patched = await refusal_of(api.patch(path, {"metadata": {"uid": "other"}}))

    assert old == new
    why = f"Precondition failed: UID in precondition: other, UID in object meta: {old['metadata']['uid']}"
    assert (409, "Conflict", True) == (put.status, put.reason, put.message.endswith(why))
    text = 'ConfigMap "a" is invalid: metadata.uid: Invalid value: "other": field is immutable'
    assert (422, "Invalid", text) == patched


async def test_uid_of_a_patch_to_a_pod(api: Api) -> None:
    """A merge patch with the uid of a Pod never changes a later Pod with the same name."""
    first = await api.create_pod()
    await api.delete(f"{api.pods}/p", grace_seconds=0)
    second = await api.create_pod()
    change = {"annotations": {"a": "b"}}

    refused = await error_of(api.patch(f"{api.pods}/p", {"metadata": {"uid": first["metadata"]["uid"], **change}}))
    changed = await api.patch(f"{api.pods}/p", {"metadata": {"uid": second["metadata"]["uid"], **change}})

    assert (422, "Invalid") == (refused.status, refused.reason)
    assert {"a": "b"} == changed["metadata"]["annotations"]
    assert int(second["metadata"]["resourceVersion"]) < int(changed["metadata"]["resourceVersion"])


async def test_status_and_spec_are_written_apart(api: Api) -> None:
    """The main resource keeps the status, and the status subresource keeps the spec and writes annotations."""
    await api.create_pod()
    path = f"{api.pods}/p"

    await api.patch(path, {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running", "message": "x"}})
    pod = await api.patch(
        f"{path}/status",
        {
            "metadata": {"annotations": {"c": "d"}},
            "spec": {"activeDeadlineSeconds": 5},
            "status": {"phase": "Failed", "reason": "Y"},
        },
    )

    assert ({"a": "b"}, {"c": "d"}) == (pod["metadata"]["labels"], pod["metadata"]["annotations"])
    assert (None, "Failed", "Y") == (pod["status"].get("message"), pod["status"]["phase"], pod["status"]["reason"])
    assert "activeDeadlineSeconds" not in pod["spec"]


async def test_place_of_an_object_is_its_path(api: Api) -> None:
    """An object has the name and namespace of its path, and a body with others is a 400."""
    made = await api.create(api.config_maps, {"metadata": {"name": "a", "namespace": None}})
    elsewhere = await refusal_of(api.create(api.config_maps, {"metadata": {"name": "b", "namespace": "kube-system"}}))
    renamed = await refusal_of(api.replace(f"{api.config_maps}/a", {"metadata": {"name": "b"}}))

    assert api.namespace == made["metadata"]["namespace"]
    text = "the namespace of the provided object does not match the namespace sent on the request"
    assert (400, "BadRequest", text) == elsewhere
    assert (400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)") == renamed


async def test_generated_names(api: Api) -> None:
    """`generateName` gives each object a unique name, the prefix and five letters or digits."""
    made = [await api.create(api.config_maps, {"metadata": {"generateName": "x-"}}) for _ in range(3)]
    names = {item["metadata"]["name"] for item in made}

    assert 3 == len(names)
    assert {("x-", 7)} == {(name[:2], len(name)) for name in names}


async def test_dry_run(api: Api) -> None:
    """A dry run of each verb answers like the verb, and stores nothing."""
    made = await api.create(api.config_maps, {"metadata": {"name": "a"}}, dryRun="All")
    await api.create(api.config_maps, {"metadata": {"name": "b"}})
    patched = await api.patch(f"{api.config_maps}/b", {"data": {"k": "v"}}, dryRun="All")
    await api.request("DELETE", f"{api.config_maps}/b", dryRun="All")

    assert ("a", {"k": "v"}) == (made["metadata"]["name"], patched["data"])
    assert None is (await api.get(f"{api.config_maps}/b")).get("data")
    assert 404 == (await error_of(api.get(f"{api.config_maps}/a"))).status


async def test_deletion_preconditions(api: Api) -> None:
    """A deletion with a uid never deletes a later object with the same name."""
    pod = await api.create_pod()
    error = await error_of(api.delete(f"{api.pods}/p", uid="other"))
    await api.delete(f"{api.pods}/p", uid=pod["metadata"]["uid"])

    assert (409, "Conflict") == (error.status, error.reason)
    assert 404 == (await error_of(api.pod())).status


async def test_bound_pod_is_deleted_in_two_steps(api: Api) -> None:
    """The deletion of a bound Pod sets a time that later deletions can only shorten, and grace 0 ends it."""
    await api.create_pod(terminationGracePeriodSeconds=7)
    await api.bind("p", "nowhere")

    marked = await api.delete(f"{api.pods}/p")
    shortened = await api.delete(f"{api.pods}/p", grace_seconds=3)
    same = await api.delete(f"{api.pods}/p", grace_seconds=30)
    await api.delete(f"{api.pods}/p", grace_seconds=0)

    assert 7 == marked["metadata"]["deletionGracePeriodSeconds"]
    assert 3 == shortened["metadata"]["deletionGracePeriodSeconds"]
    assert shortened == same
    assert 404 == (await error_of(api.pod())).status


async def test_unbound_and_ended_pods_are_deleted_at_once(api: Api) -> None:
    """A Pod that is unbound or has ended is deleted at once, and the answer is the Pod."""
    unbound = await api.create_pod("unbound")
    await api.create_pod("ended")
    await api.bind("ended", "nowhere")
    await api.patch(f"{api.pods}/ended/status", {"status": {"phase": "Succeeded"}})

    answers = [await api.delete(f"{api.pods}/{name}") for name in ("unbound", "ended")]

    assert ["Pod", "Pod"] == [answer["kind"] for answer in answers]
    assert unbound["metadata"]["uid"] == answers[0]["metadata"]["uid"]
    assert [] == await api.names(api.pods)


async def test_deletion_of_other_kinds_answers_success(api: Api) -> None:
    """The answer to the deletion of a ConfigMap is a Status with its name, kind and uid."""
    made = await api.create(api.config_maps, {"metadata": {"name": "a"}})

    answer = await api.delete(f"{api.config_maps}/a")

    details = {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    assert status == answer


async def test_finalizers_hold_an_object(api: Api) -> None:
    """A deleted object with finalizers stays, with a deletion time, until a patch removes the last finalizer."""
    await api.create(api.config_maps, {"metadata": {"name": "a", "finalizers": ["x.y/z"]}})

    await api.delete(f"{api.config_maps}/a")
    marked = await api.get(f"{api.config_maps}/a")
    await api.patch(f"{api.config_maps}/a", {"metadata": {"finalizers": None}})

    assert "deletionTimestamp" in marked["metadata"]
    assert 404 == (await error_of(api.get(f"{api.config_maps}/a"))).status


async def test_collection_is_deleted_by_selector(api: Api) -> None:
    """DELETE of a collection deletes only the objects that match the selector."""
    for name, tier in (("a", "x"), ("b", "y"), ("c", "x")):
        await api.create(api.config_maps, {"metadata": {"name": name, "labels": {"tier": tier}}})

    await api.request("DELETE", api.config_maps, labelSelector="tier=x")

    assert ["b"] == await api.names(api.config_maps, labelSelector="tier")


async def test_deleted_namespace_loses_its_objects(api: Api) -> None:
    """A deleted namespace rejects new objects, loses its objects, and is gone after its last Pod."""
    namespace = api.namespace
    await api.create_pod()
    await api.bind("p", "nowhere")
    await api.create(f"{api.place}/secrets", {"metadata": {"name": "s"}, "stringData": {"k": "v"}})

    await api.delete(api.place)
    refused = await refusal_of(api.create_pod("late"))

    async def remains_to_be_ended() -> bool:
        return "deletionTimestamp" in (await api.pod())["metadata"]

    await eventually(remains_to_be_ended)
    text = f"unable to create new content in namespace {namespace} because it is being terminated"
    assert (403, "Forbidden", f'pods "late" is forbidden: {text}') == refused
    await api.delete(f"{api.pods}/p", grace_seconds=0)

    async def is_gone() -> bool:
        return namespace not in await api.names("/api/v1/namespaces")

    await eventually(is_gone, seconds=40)


async def test_list_items_have_no_kind(api: Api) -> None:
    """A list has a kind, and its items have none."""
    await api.create_pod()

    answer = await api.get(api.pods)

    assert ("PodList", "v1") == (answer["kind"], answer["apiVersion"])
    assert {"metadata", "spec", "status"} == set(answer["items"][0])


async def test_lists_select(api: Api) -> None:
    """A list selects by labels and fields together, in one namespace or in all."""
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "1"}), ("c", {})):
        await api.create(api.pods, a_pod(name, metadata={"labels": labels}))
    node = f"n-{api.namespace}"
    await api.bind("a", node)
    await api.bind("c", node)

    assert ["a"] == await api.names("/api/v1/pods", labelSelector="x", fieldSelector=f"spec.nodeName={node}")
    assert ["a", "c"] == await api.names(api.pods, fieldSelector=f"spec.nodeName={node},status.phase!=Failed")
    assert ["b"] == await api.names(api.pods, fieldSelector="spec.nodeName=")
    assert ["c"] == await api.names(api.pods, labelSelector="x notin (1,2)")


async def test_secrets(api: Api) -> None:
    """The default type of a Secret is Opaque, and `stringData` becomes base64 in `data`."""
    made = await api.create(f"{api.place}/secrets", {"metadata": {"name": "s"}, "stringData": {"k": "v"}})

    assert ("Opaque", {"k": "dg=="}) == (made["type"], made["data"])
    assert "stringData" not in made


async def test_empty_secret_of_a_type_is_filled_under_its_version(api: Api) -> None:
    """If two writers fill an empty Secret with the version that they read, one wins, and the other gets 409."""
    made = await api.create(f"{api.place}/secrets", {"metadata": {"name": "s"}, "type": "Opaque"})
    path = f"{api.place}/secrets/s"

    written = await api.replace(path, {**made, "data": {"tls.crt": "eA=="}})
    refused = await error_of(api.replace(path, {**made, "data": {"tls.crt": "eQ=="}}))

    assert (409, "Conflict") == (refused.status, refused.reason)
    assert ("Secret", written) == (written["kind"], await api.get(path))


async def test_leases(api: Api) -> None:
    """A Lease is created, renewed with its version, and keeps times with microseconds."""
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-02T03:04:05.000006Z"}
    made = await api.create(lease(api), {"metadata": {"name": "l"}, "spec": spec})

    renewed = await api.replace(f"{lease(api)}/l", {**made, "spec": {**spec, "holderIdentity": "b"}})
    lost = await error_of(api.replace(f"{lease(api)}/l", {**made, "spec": {**spec, "holderIdentity": "c"}}))

    assert {**spec, "holderIdentity": "b"} == renewed["spec"]
    assert (409, "Conflict") == (lost.status, lost.reason)
    assert "generation" not in renewed["metadata"]


async def test_events(api: Api) -> None:
    """A core Event is stored as written, and found by the fields of its involved object."""
    pod = await api.create_pod()
    about = {"kind": "Pod", "namespace": api.namespace, "name": "p", "uid": pod["metadata"]["uid"]}
    fields = {"type": "Warning", "message": "hello", "source": {"component": "hami"}, "count": 1}
    for name, told in (("mine", about), ("other", {**about, "uid": "x"})):
        event = {"metadata": {"name": name}, "involvedObject": told, "reason": name.title(), **fields}
        await api.create(f"{api.place}/events", event)
    await api.patch(f"{api.place}/events/mine", {"count": 2})

    selected = f"involvedObject.name=p,involvedObject.uid={about['uid']}"
    found, _ = await api.list(f"{api.place}/events", fieldSelector=selected)

    expected = {**fields, "count": 2, "reason": "Mine", "involvedObject": about}
    assert [expected] == [{key: event[key] for key in expected} for event in found]
    reason = await api.names(f"{api.place}/events", fieldSelector="reason=Other")
    assert ["other"] == reason


async def test_nodes_come_with_their_status(api: Api, cleanup: list[str]) -> None:
    """A Node is created with its status, its allocatable defaults to its capacity, and it can be deleted."""
    name = f"n-{api.namespace}"
    cleanup.append(f"/api/v1/nodes/{name}")
    body = a_node(name)
    del body["status"]["allocatable"]

    made = await api.create("/api/v1/nodes", body)
    patched = await api.patch(f"/api/v1/nodes/{name}/status", {"status": {"capacity": {"x.y/z": "1"}}})

    assert {"cpu": "4", "memory": "8Gi", "pods": "110"} == made["status"]["allocatable"]
    assert ("1", "4") == (patched["status"]["capacity"]["x.y/z"], patched["status"]["capacity"]["cpu"])


async def test_node_annotations_under_a_version(api: Api, cleanup: list[str]) -> None:
    """If several writers patch a Node's annotations with its version at once, one wins."""
    name = f"n-{api.namespace}"
    cleanup.append(f"/api/v1/nodes/{name}")
    await api.create_node(name)

    async def lock(value: str) -> bool:
        metadata = {"annotations": {"hami.io/mutex.lock": value}, "resourceVersion": version}
        try:
            await api.patch(f"/api/v1/nodes/{name}", {"metadata": metadata})
        except ApiError as error:
            if error.status != 409:
                raise
            return False
        return True

    won: list[bool] = []
    while not any(won):
        # No writer wins if a controller has written meanwhile.
        version = (await api.get(f"/api/v1/nodes/{name}"))["metadata"]["resourceVersion"]
        won = await asyncio.gather(*(lock(f"v{i}") for i in range(5)))

    assert 1 == sum(won)
