"""
The verbs do what clients rely on, with the errors they look at.
"""

import asyncio
from typing import Any

import pytest

from minicluster.client import ApiError
from minicluster_tests.apiserver_peers import Api, a_node, a_pod, error_of, eventually

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def found(error: ApiError) -> tuple[int, str, str]:
    """Return all a client sees of an error."""
    return error.status, error.reason, error.message


async def test_created_object_gets_uid_time_and_a_growing_version(api: Api) -> None:
    """
    One counter serves all resources.
    """
    first = await api.create(CONFIG_MAPS, {"metadata": {"name": "a"}})
    second = await api.create_node()

    assert {"uid", "creationTimestamp", "resourceVersion", "name", "namespace"} == set(first["metadata"])
    assert int(first["metadata"]["resourceVersion"]) < int(second["metadata"]["resourceVersion"])


async def test_create_errors_have_the_real_texts(api: Api) -> None:
    """
    Services tell errors apart by code and reason, people by the message.
    """
    await api.create(CONFIG_MAPS, {"metadata": {"name": "a"}})
    bad_name = await error_of(api.create(CONFIG_MAPS, {"metadata": {"name": "A_"}}))

    assert (409, "AlreadyExists", 'configmaps "a" already exists') == found(
        await error_of(api.create(CONFIG_MAPS, {"metadata": {"name": "a"}}))
    )
    assert (404, "NotFound", 'namespaces "nope" not found') == found(
        await error_of(api.create("/api/v1/namespaces/nope/configmaps", {"metadata": {"name": "a"}}))
    )
    assert (422, "Invalid") == (bad_name.status, bad_name.reason)
    assert bad_name.message.startswith(
        'ConfigMap "A_" is invalid: metadata.name: Invalid value: "A_": a lowercase RFC 1123 subdomain must consist of'
    )
    assert (400, "BadRequest", "resourceVersion should not be set on objects to be created") == found(
        await error_of(api.create(CONFIG_MAPS, {"metadata": {"name": "b", "resourceVersion": "1"}}))
    )


@pytest.mark.parametrize(
    ("method", "path", "body", "content_type", "expected"),
    [
        ("GET", f"{CONFIG_MAPS}/x", None, "application/json", (404, 'configmaps "x" not found')),
        ("GET", f"{LEASES}/x", None, "application/json", (404, 'leases.coordination.k8s.io "x" not found')),
        ("GET", "/api/v1/frobs", None, "application/json", (404, "the server could not find the requested resource")),
        ("GET", "/nope", None, "application/json", (404, "the server could not find the requested resource")),
        ("POST", "/api/v1/pods", {}, "application/json", (405, "the server does not allow this method on")),
        ("PUT", CONFIG_MAPS, {}, "application/json", (405, "the server does not allow this method on")),
        ("POST", CONFIG_MAPS, {}, "text/plain", (415, "the body of the request was in an unknown format - accepted")),
        (
            "PATCH",
            f"{CONFIG_MAPS}/x",
            {},
            "application/apply-patch+yaml",
            (415, "the body of the request was in an unkn"),
        ),
        ("POST", CONFIG_MAPS, [], "application/json", (400, "the body must be an object, found list")),
        (
            "POST",
            CONFIG_MAPS,
            {"kind": "Pod"},
            "application/json",
            (400, 'Pod in version "v1" cannot be handled as a Co'),
        ),
        ("GET", "/api/v1/pods?labelSelector=a+in+b", None, "application/json", (400, "unable to parse requirement")),
        ("GET", "/api/v1/pods?fieldSelector=a%3Db", None, "application/json", (400, "field label not supported: a")),
        ("POST", f"{CONFIG_MAPS}?dryRun=Some", {}, "application/json", (400, "invalid dry run")),
    ],
)
async def test_requests_without_sense_are_refused_by_code_and_text(
    api: Api, method: str, path: str, body: Any, content_type: str, expected: tuple[int, str]
) -> None:
    """
    Each wrong request has its own code.
    """
    error = await error_of(api.request(method, path, body, content_type))

    assert expected == (error.status, error.message[: len(expected[1])])


async def test_update_with_an_old_version_is_a_conflict(api: Api) -> None:
    """
    Of two writers that read the same object one must read again.
    """
    old = await api.create(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "1"}})
    await api.replace(f"{CONFIG_MAPS}/a", {**old, "data": {"k": "2"}})

    text = "the object has been modified; please apply your changes to the latest version and try again"
    assert (409, "Conflict", f'Operation cannot be fulfilled on configmaps "a": {text}') == found(
        await error_of(api.replace(f"{CONFIG_MAPS}/a", {**old, "data": {"k": "3"}}))
    )
    assert (409, "Conflict") == found(
        await error_of(
            api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}})
        )
    )[:2]


async def test_update_without_a_version_wins_except_for_leases(api: Api) -> None:
    """
    A Lease without version could be stolen, everything else is overwritten.
    """
    await api.create(CONFIG_MAPS, {"metadata": {"name": "a"}})
    await api.create(LEASES, {"metadata": {"name": "a"}, "spec": {}})

    written = await api.replace(f"{CONFIG_MAPS}/a", {"metadata": {"name": "a"}, "data": {"k": "v"}})
    refused = await error_of(api.replace(f"{LEASES}/a", {"metadata": {"name": "a"}, "spec": {}}))

    assert {"k": "v"} == written["data"]
    assert 422 == refused.status
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in refused.message


async def test_writing_what_is_there_writes_nothing(api: Api) -> None:
    """
    The version stays, so no watch sees anything.
    """
    old = await api.create(CONFIG_MAPS, {"metadata": {"name": "a", "labels": {"x": "y"}}})

    assert old == await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"x": "y"}}})
    assert old == await api.replace(f"{CONFIG_MAPS}/a", old)


async def test_concurrent_patches_all_take_effect(api: Api) -> None:
    """
    A patch is applied to the object as it is at the moment of the write.
    """
    await api.create(CONFIG_MAPS, {"metadata": {"name": "a"}})

    await asyncio.gather(*(api.patch(f"{CONFIG_MAPS}/a", {"data": {f"k{i}": "v"}}) for i in range(20)))

    assert 20 == len((await api.get(f"{CONFIG_MAPS}/a"))["data"])


async def test_what_belongs_to_the_server_cannot_be_written(api: Api) -> None:
    """
    Identity survives any update; a foreign uid is a conflict.
    """
    old = await api.create(CONFIG_MAPS, {"metadata": {"name": "a"}})

    new = await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}})
    error = await error_of(api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"uid": "other"}}))

    assert old == new
    uid = old["metadata"]["uid"]
    why = f"Precondition failed: UID in precondition: other, UID in object meta: {uid}"
    assert (409, "Conflict", f'Operation cannot be fulfilled on configmaps "a": {why}') == found(error)


async def test_status_and_spec_are_written_apart(api: Api) -> None:
    """
    The main resource keeps the status, the subresource keeps the spec.
    """
    await api.create_node()

    await api.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": True}, "status": {"phase": "x"}})
    node = await api.patch(
        "/api/v1/nodes/n1/status", {"spec": {"unschedulable": False}, "status": {"capacity": {"x/y": "1"}}}
    )

    assert (True, "1", None) == (
        node["spec"]["unschedulable"],
        node["status"]["capacity"]["x/y"],
        node["status"].get("phase"),
    )


async def test_place_of_an_object_is_its_path(api: Api) -> None:
    """
    An absent or null name and namespace are filled in, others must agree.
    """
    made = await api.create(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": None}})
    elsewhere = await error_of(api.create(CONFIG_MAPS, {"metadata": {"name": "b", "namespace": "kube-system"}}))
    renamed = await error_of(api.replace(f"{CONFIG_MAPS}/a", {"metadata": {"name": "b"}}))

    assert "default" == made["metadata"]["namespace"]
    text = "the namespace of the provided object does not match the namespace sent on the request"
    assert (400, "BadRequest", text) == found(elsewhere)
    assert (400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)") == found(renamed)


async def test_generated_names_start_with_their_prefix_and_differ(api: Api) -> None:
    """
    `generateName` is how Deployments and Events name what they make.
    """
    made = [await api.create(CONFIG_MAPS, {"metadata": {"generateName": "x-"}}) for _ in range(3)]
    names = {item["metadata"]["name"] for item in made}

    assert 3 == len(names)
    assert {("x-", 7)} == {(name[:2], len(name)) for name in names}


async def test_dry_run_answers_and_stores_nothing(api: Api) -> None:
    """
    Everything but the write happens, for each verb.
    """
    made = await api.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, dryRun="All")
    await api.create(CONFIG_MAPS, {"metadata": {"name": "b"}})
    patched = await api.patch(f"{CONFIG_MAPS}/b", {"data": {"k": "v"}}, dryRun="All")
    await api.request("DELETE", f"{CONFIG_MAPS}/b", dryRun="All")

    assert ("a", {"k": "v"}) == (made["metadata"]["name"], patched["data"])
    assert [None] == [item.get("data") for item in (await api.list(CONFIG_MAPS))[0]]


async def test_deletion_preconditions_protect_a_namesake(api: Api) -> None:
    """
    Deleting by uid never hits the object that took the name since.
    """
    pod = await api.create_pod()
    error = await error_of(api.delete(f"{api.pods}/p", uid="other"))
    await api.delete(f"{api.pods}/p", uid=pod["metadata"]["uid"])

    assert (409, "Conflict") == (error.status, error.reason)
    assert 404 == (await error_of(api.get(f"{api.pods}/p"))).status


async def test_bound_pod_is_deleted_in_two_steps(api: Api) -> None:
    """
    First a time is set, then the kubelet ends it with grace 0.
    """
    await api.create_pod(terminationGracePeriodSeconds=7)
    await api.bind("p")

    marked = await api.delete(f"{api.pods}/p")
    shortened = await api.delete(f"{api.pods}/p", grace_seconds=3)
    same = await api.delete(f"{api.pods}/p", grace_seconds=30)
    await api.delete(f"{api.pods}/p", grace_seconds=0)

    assert 7 == marked["metadata"]["deletionGracePeriodSeconds"]
    assert 3 == shortened["metadata"]["deletionGracePeriodSeconds"]
    assert shortened == same
    assert 404 == (await error_of(api.get(f"{api.pods}/p"))).status


async def test_unbound_and_ended_pods_are_deleted_at_once(api: Api) -> None:
    """
    There is no kubelet that would finish them.
    """
    await api.create_pod("unbound")
    await api.create_pod("ended")
    await api.bind("ended")
    await api.patch(f"{api.pods}/ended/status", {"status": {"phase": "Succeeded"}})

    for name in ("unbound", "ended"):
        await api.delete(f"{api.pods}/{name}")

    assert [] == (await api.list(api.pods))[0]


async def test_finalizers_hold_an_object_until_the_last_is_gone(api: Api) -> None:
    """
    The object stays visible, marked, and then goes with the patch that removes the last one.
    """
    await api.create(CONFIG_MAPS, {"metadata": {"name": "a", "finalizers": ["x.y/z"]}})

    await api.delete(f"{CONFIG_MAPS}/a")
    marked = await api.get(f"{CONFIG_MAPS}/a")
    await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": None}})

    assert "deletionTimestamp" in marked["metadata"]
    assert 404 == (await error_of(api.get(f"{CONFIG_MAPS}/a"))).status


async def test_collection_is_deleted_by_selector(api: Api) -> None:
    """
    Only what the selector matches goes.
    """
    for name, tier in (("a", "x"), ("b", "y"), ("c", "x")):
        await api.create(CONFIG_MAPS, {"metadata": {"name": name, "labels": {"tier": tier}}})

    await api.request("DELETE", CONFIG_MAPS, labelSelector="tier=x")

    assert ["b"] == [item["metadata"]["name"] for item in (await api.list(CONFIG_MAPS))[0]]


async def test_deleted_namespace_takes_its_content_along(api: Api) -> None:
    """
    Nothing new gets in meanwhile, bound Pods get their grace, and at the end the namespace is gone.
    """
    await api.create("/api/v1/namespaces", {"metadata": {"name": "ns"}})
    pods = "/api/v1/namespaces/ns/pods"
    await api.create(pods, a_pod())
    await api.create(f"{pods}/p/binding", {"target": {"name": "n1"}})
    await api.create("/api/v1/namespaces/ns/secrets", {"metadata": {"name": "s"}, "stringData": {"k": "v"}})

    await api.delete("/api/v1/namespaces/ns")
    refused = await error_of(api.create(pods, a_pod("late")))

    async def remaining() -> bool:
        return (
            [] == (await api.list("/api/v1/secrets"))[0]
            and "deletionTimestamp" in (await api.get(f"{pods}/p"))["metadata"]
        )

    assert await eventually(remaining)
    text = "unable to create new content in namespace ns because it is being terminated"
    assert (403, "Forbidden", f'pods "late" is forbidden: {text}') == found(refused)
    await api.delete(f"{pods}/p", grace_seconds=0)

    async def is_gone() -> bool:
        return "ns" not in {item["metadata"]["name"] for item in (await api.list("/api/v1/namespaces"))[0]}

    assert await eventually(is_gone)


async def test_list_items_have_no_kind_of_their_own(api: Api) -> None:
    """
    As from the real server: only the list has one, and watch events.
    """
    await api.create_node()

    answer = await api.get("/api/v1/nodes")

    assert ("NodeList", "v1") == (answer["kind"], answer["apiVersion"])
    assert {"metadata", "spec", "status"} == set(answer["items"][0])


async def test_reviews_let_everybody_do_everything(api: Api) -> None:
    """
    This cluster has no users to keep apart.
    """
    token = await api.create("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x"}})
    access = await api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": {"user": "x"}})

    assert (True, True) == (token["status"]["authenticated"], access["status"]["allowed"])


async def test_lists_select_by_labels_and_fields(api: Api) -> None:
    """
    Both selectors at once, within a namespace or across all.
    """
    await api.create("/api/v1/nodes", a_node("n1"))
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "1"}), ("c", {})):
        await api.create(api.pods, {**a_pod(name), "metadata": {"name": name, "labels": labels}})
    await api.bind("a")
    await api.bind("c")

    selected, _ = await api.list("/api/v1/pods", labelSelector="x", fieldSelector="spec.nodeName=n1")

    assert ["a"] == [pod["metadata"]["name"] for pod in selected]
