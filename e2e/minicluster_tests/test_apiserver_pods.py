"""
Pods are completed, checked, bound and limited as the real API server does it.
"""

import asyncio
from typing import Any

import pytest
from aiohttp import ClientSession, web

from minicluster.apiserver.pods import qos_class
from minicluster_tests.apiserver_peers import Api, a_pod, error_of, eventually


def resources(**limits: Any) -> dict[str, Any]:
    """Return containers with *limits*, whose underscores become dots and slashes."""
    named = {name.replace("__", "/").replace("_", "."): amount for name, amount in limits.items()}
    return {"containers": [{"name": "main", "image": "busybox:1", "resources": {"limits": named}}]}


async def test_pod_gets_the_defaults_services_rely_on(api: Api) -> None:
    """
    Among them the scheduler's name and requests taken from limits.
    """
    pod = await api.create(api.pods, {"metadata": {"name": "p"}, "spec": resources(nvidia_com__gpu=1)})
    spec = pod["spec"]

    assert ("default-scheduler", "Always", 30, 0) == tuple(
        spec[key] for key in ("schedulerName", "restartPolicy", "terminationGracePeriodSeconds", "priority")
    )
    assert {"limits": {GPU: "1"}, "requests": {GPU: "1"}} == spec["containers"][0]["resources"]
    assert ("Pending", "BestEffort") == (pod["status"]["phase"], pod["status"]["qosClass"])
    assert ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] == [t["key"] for t in spec["tolerations"]]


async def test_status_of_a_new_pod_is_the_servers(api: Api) -> None:
    """
    Nobody creates a running Pod.
    """
    pod = await api.create(api.pods, {**a_pod(), "status": {"phase": "Running", "podIP": "1.2.3.4"}})

    assert {"phase": "Pending", "qosClass": "BestEffort"} == pod["status"]


GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": []}, "spec.containers: Required value"),
        ({"containers": [{"name": "a", "image": "i"}] * 2}, 'spec.containers[1].name: Duplicate value: "a"'),
        ({"containers": [{"image": "i"}]}, "spec.containers[0].name: Required value"),
        (
            {"containers": [{"name": "A", "image": "i"}]},
            'spec.containers[0].name: Invalid value: "A": a lowercase RFC 1123 ',
        ),
        ({"containers": [{"name": "a"}]}, "spec.containers[0].image: Required value"),
        (
            {"containers": [{"name": "a", "image": "i", "resources": {"requests": {GPU: 1}}}]},
            "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
        ),
        (
            {"containers": [{"name": "a", "image": "i", "resources": {"limits": {GPU: 2}, "requests": {GPU: 1}}}]},
            'spec.containers[0].resources.requests: Invalid value: "1": must be equal to nvidia.com/gpu limit of 2',
        ),
        (
            resources(nvidia_com__gpu="500m"),
            f'spec.containers[0].resources.limits[{GPU}]: Invalid value: "500m": must be an',
        ),
        (
            {"containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": 1}, "requests": {"cpu": 2}}}]},
            'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
    ],
)
async def test_invalid_pod_is_refused_with_the_field_and_the_reason(api: Api, spec: Any, expected: str) -> None:
    """
    Only what services and their users run into.
    """
    error = await error_of(api.create(api.pods, {"metadata": {"name": "p"}, "spec": spec}))

    assert 422 == error.status
    assert f'Pod "p" is invalid: {expected}' in error.message.replace("[spec", "spec")


async def test_malformed_pod_is_a_bad_request(api: Api) -> None:
    """
    A wrong type anywhere is the client's mistake, not the server's.
    """
    for spec in ("x", {"containers": "x"}, {"containers": [1]}, resources(cpu="x")):
        assert 400 == (await error_of(api.create(api.pods, {"metadata": {"name": "p"}, "spec": spec}))).status


async def test_pod_spec_is_fixed_but_for_images_and_more_tolerations(api: Api) -> None:
    """
    Metadata is free, a container's environment is not.
    """
    await api.create_pod()
    path = f"{api.pods}/p"

    await api.patch(path, {"metadata": {"annotations": {"a": "b"}}})
    await api.patch(path, {"spec": {"containers": [{"name": "main", "image": "other:2"}]}}, "strategic")
    refused = await error_of(
        api.patch(path, {"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "b"}]}]}}, "strategic")
    )

    assert (422, True) == (refused.status, "spec: Forbidden: pod updates may not change fields" in refused.message)
    assert "other:2" == (await api.get(path))["spec"]["containers"][0]["image"]


@pytest.mark.parametrize(
    ("limits", "requests", "expected"),
    [
        ({}, {}, "BestEffort"),
        ({GPU: "1"}, {GPU: "1"}, "BestEffort"),
        ({"cpu": "1"}, {"cpu": "1"}, "Burstable"),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "1000m", "memory": "1024Mi"}, "Guaranteed"),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "500m", "memory": "1Gi"}, "Burstable"),
    ],
)
def test_qos_class_counts_cpu_and_memory_only(limits: Any, requests: Any, expected: str) -> None:
    """
    A device makes no class.
    """
    assert expected == qos_class({"containers": [{"resources": {"limits": limits, "requests": requests}}]})


async def test_binding_sets_node_annotations_and_condition_in_one_write(api: Api) -> None:
    """
    The Pod's own annotations stay, the Binding's labels do not come along.
    """
    made = await api.create(api.pods, {**a_pod(), "metadata": {"name": "p", "annotations": {"own": "1", "both": "1"}}})
    uid, before = made["metadata"]["uid"], int(made["metadata"]["resourceVersion"])

    answer = await api.bind("p", "n1", uid=uid, annotations={"both": "2", "new": "3"}, labels={"l": "1"})
    pod = await api.get(f"{api.pods}/p")

    assert ("Success", 201) == (answer["status"], answer["code"])
    assert "n1" == pod["spec"]["nodeName"]
    assert {"own": "1", "both": "2", "new": "3"} == pod["metadata"]["annotations"]
    assert "labels" not in pod["metadata"]
    assert before + 1 == int(pod["metadata"]["resourceVersion"])
    assert [("PodScheduled", "True")] == [(c["type"], c["status"]) for c in pod["status"]["conditions"]]


async def test_second_binding_and_wrong_uid_change_nothing(api: Api) -> None:
    """
    Both are conflicts, with the texts measured on the real server.
    """
    made = await api.create_pod()
    wrong = await error_of(api.bind("p", "n1", uid="other", annotations={"x": "y"}))
    await api.bind("p", "n1")
    bound = await api.get(f"{api.pods}/p")
    second = await error_of(api.bind("p", "n2", annotations={"x": "y"}))

    uid = made["metadata"]["uid"]
    why = f"Precondition failed: UID in precondition: other, UID in object meta: {uid}"
    assert (409, f'Operation cannot be fulfilled on pods "p": {why}') == (wrong.status, wrong.message)
    why = 'pod p is already assigned to node "n1"'
    assert (409, f'Operation cannot be fulfilled on pods/binding "p": {why}') == (second.status, second.message)
    assert bound == await api.get(f"{api.pods}/p")


async def test_only_one_of_many_bindings_wins(api: Api) -> None:
    """
    Racing schedulers cannot both place a Pod.
    """
    await api.create_pod()

    answers = await asyncio.gather(*(api.bind("p", f"n{i}") for i in range(8)), return_exceptions=True)

    assert 7 == sum(isinstance(answer, Exception) for answer in answers)


async def test_gated_and_dying_pods_cannot_be_bound(api: Api) -> None:
    """
    The gate must go first; a Pod that is being deleted gets no Node.
    """
    gated = await api.create_pod("gated", schedulingGates=[{"name": "wait"}])
    await api.create(api.pods, {**a_pod("dying"), "metadata": {"name": "dying", "finalizers": ["a/b"]}})
    await api.delete(f"{api.pods}/dying")

    assert "SchedulingGated" == gated["status"]["conditions"][0]["reason"]
    assert "pod gated has non-empty .spec.schedulingGates" in (await error_of(api.bind("gated"))).message
    assert "pod dying is being deleted, cannot be assigned to a host" in (await error_of(api.bind("dying"))).message


async def test_legacy_bindings_collection_binds_too(api: Api) -> None:
    """
    Older client libraries POST to `namespaces/x/bindings`.
    """
    await api.create_pod()

    await api.create("/api/v1/namespaces/default/bindings", {"metadata": {"name": "p"}, "target": {"name": "n1"}})

    assert "n1" == (await api.get(f"{api.pods}/p"))["spec"]["nodeName"]


async def test_eviction_deletes_with_its_options(api: Api) -> None:
    """
    A bound Pod is marked with the grace the eviction gives.
    """
    await api.create_pod()
    await api.bind("p")

    await api.create(f"{api.pods}/p/eviction", {"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 5}})

    assert 5 == (await api.get(f"{api.pods}/p"))["metadata"]["deletionGracePeriodSeconds"]


QUOTAS = "/api/v1/namespaces/default/resourcequotas"


async def test_quota_refuses_what_exceeds_it_and_gives_back_what_ends(api: Api) -> None:
    """
    Use is counted at admission, and soon after a Pod's end it is free again.
    """
    await api.create(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {f"requests.{GPU}": "2", "pods": "10"}}})
    spec = resources(nvidia_com__gpu=2)
    await api.create(api.pods, {"metadata": {"name": "a"}, "spec": spec})
    used = (await api.get(f"{QUOTAS}/q"))["status"]["used"]

    refused = await error_of(api.create(api.pods, {"metadata": {"name": "b"}, "spec": resources(nvidia_com__gpu=1)}))
    await api.delete(f"{api.pods}/a")

    async def is_admitted() -> bool:
        found = await api.get(f"{QUOTAS}/q")
        return bool(found["status"]["used"][f"requests.{GPU}"] == "0")

    assert {f"requests.{GPU}": "2", "pods": "1"} == used
    amounts = [f"requests.{GPU}={amount}" for amount in (1, 2, 2)]
    why = f"exceeded quota: q, requested: {amounts[0]}, used: {amounts[1]}, limited: {amounts[2]}"
    assert (403, f'pods "b" is forbidden: {why}') == (refused.status, refused.message)
    assert await eventually(is_admitted)


async def test_quota_on_cpu_demands_that_every_container_says_how_much(api: Api) -> None:
    """
    What is not stated cannot be counted.
    """
    await api.create(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "2"}}})

    refused = await error_of(api.create_pod())

    assert 'pods "p" is forbidden: failed quota: q: must specify requests.cpu for: main' == refused.message


async def test_quota_is_never_exceeded_by_simultaneous_requests(api: Api) -> None:
    """
    Check and booking are one step.
    """
    await api.create(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "3"}}})

    await asyncio.gather(*(api.create_pod(f"p{i}") for i in range(10)), return_exceptions=True)

    assert 3 == len((await api.list(api.pods))[0])


async def test_priority_and_runtime_classes_are_resolved_at_admission(api: Api) -> None:
    """
    A Pod carries its priority as a number, and a class that is not there refuses it.
    """
    await api.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 1000})

    pod = await api.create_pod("a", priorityClassName="high")
    critical = await api.create_pod("b", priorityClassName="system-node-critical")
    unknown = await error_of(api.create_pod("c", priorityClassName="nope"))
    no_class = await error_of(api.create_pod("d", runtimeClassName="nvidia"))

    assert (1000, 2000001000) == (pod["spec"]["priority"], critical["spec"]["priority"])
    assert 'pods "c" is forbidden: no PriorityClass with name nope was found' == unknown.message
    assert 'pods "d" is forbidden: pod rejected: RuntimeClass "nvidia" not found' == no_class.message


async def test_log_comes_from_the_kubelet_of_the_pods_node(api: Api) -> None:
    """
    The Node's status says where, the query goes along, and its errors come back.
    """

    async def answer(request: web.Request) -> web.Response:
        return web.Response(
            text=f"{request.path}?{request.query_string}", status=404 if "gone" in request.path else 200
        )

    application = web.Application()
    application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    await api.create_node()
    endpoint = {"daemonEndpoints": {"kubeletEndpoint": {"Port": runner.addresses[0][1]}}}
    await api.patch("/api/v1/nodes/n1/status", {"status": endpoint})
    for name in ("p", "gone"):
        await api.create_pod(name)
        unbound = await error_of(api.get(f"{api.pods}/{name}/log"))
        await api.bind(name)
    async with (
        ClientSession() as session,
        session.get(f"{api.server}{api.pods}/p/log?tailLines=3&container=main") as log,
    ):
        shown = await log.text()
    gone = await error_of(api.get(f"{api.pods}/gone/log"))
    unknown = await error_of(api.get(f"{api.pods}/p/log?container=other"))
    await runner.cleanup()

    assert "/containerLogs/default/p/main?tailLines=3" == shown
    assert (404, "/containerLogs/default/gone/main?") == (gone.status, gone.message)
    assert (400, "pod gone does not have a host assigned") == (unbound.status, unbound.message)
    assert (400, "container other is not valid for pod p") == (unknown.status, unknown.message)
