"""
Pods: defaults, validation, updates, binding and eviction.
"""

import asyncio
from typing import Any

import pytest

from conformance.peers.objects import IMAGE, Api, a_pod, error_of, limits, refusal_of

GPU = "nvidia.com/gpu"


def asking(requests: Any = None, limits: Any = None, name: str = "a") -> dict[str, Any]:
    """Return a container that requests resources."""
    resources = {key: amounts for key, amounts in (("requests", requests), ("limits", limits)) if amounts}
    return {"name": name, "image": "i", "resources": resources}


async def test_defaults(api: Api) -> None:
    """A new Pod gets the defaults that services and schedulers rely on, such as requests from limits."""
    variable = {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    container = {"name": "main", "image": "i", "resources": {"limits": {GPU: 1}}, "env": [variable]}
    volumes = [{"name": "e"}, {"name": "c", "configMap": {"name": "x"}}, {"name": "h", "hostPath": {"path": "/x"}}]

    spec = (await api.create_pod(containers=[container], volumes=volumes))["spec"]
    main = spec.pop("containers")[0]

    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]
    assert {
        "volumes": [
            {"name": "e", "emptyDir": {}},
            {"name": "c", "configMap": {"name": "x", "defaultMode": 420}},
            {"name": "h", "hostPath": {"path": "/x", "type": ""}},
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "automountServiceAccountToken": False,
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": tolerations,
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    } == spec
    assert {
        "name": "main",
        "image": "i",
        "env": [{"name": "N", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}}],
        "resources": {"limits": {GPU: "1"}, "requests": {GPU: "1"}},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always",
    } == main


async def test_image_pull_policy(api: Api) -> None:
    """The default pull policy is Always for the tag latest or no tag, and IfNotPresent for all others."""
    images = ("a", "a:latest", "a:1", "localhost:5000/a", "localhost/a:e2e", "a@sha256:" + "0" * 64)
    containers = [{"name": f"c{index}", "image": image} for index, image in enumerate(images)]

    made = (await api.create_pod(containers=containers))["spec"]["containers"]

    always, cached = "Always", "IfNotPresent"
    assert [always, always, cached, always, cached, cached] == [found["imagePullPolicy"] for found in made]


async def test_status_of_a_new_pod(api: Api) -> None:
    """A new Pod is Pending, with its QoS class and generation 1, whatever status was sent."""
    pod = await api.create(api.pods, {**a_pod(), "status": {"phase": "Running", "podIP": "1.2.3.4"}})

    assert {"phase": "Pending", "qosClass": "BestEffort"} == pod["status"]
    assert 1 == pod["metadata"]["generation"]


@pytest.mark.other_in("1.33", "two of the rejections with other texts")
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
            {"containers": [asking({GPU: 1})]},
            "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
        ),
        (
            {"containers": [asking({GPU: 1}, {GPU: 2})]},
            'spec.containers[0].resources.requests: Invalid value: "1": must be equal to nvidia.com/gpu limit of 2',
        ),
        (
            {"containers": [asking({}, {GPU: "500m"})]},
            f'spec.containers[0].resources.limits[{GPU}]: Invalid value: "500m": must be an integer, spec.containers[0]'
            f'.resources.requests[{GPU}]: Invalid value: "500m": must be an integer',
        ),
        (
            {"containers": [asking({"cpu": 2}, {"cpu": 1})]},
            'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            {"containers": [asking({}, {"gpu": 1})]},
            'spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource type or fully',
        ),
    ],
)
async def test_invalid_pod(api: Api, spec: Any, expected: str) -> None:
    """An invalid Pod is a 422 that names the field and the reason."""
    error = await error_of(api.create(api.pods, {"metadata": {"name": "p"}, "spec": spec}))

    assert 422 == error.status
    assert f'Pod "p" is invalid: {expected}' in error.message.replace("[spec", "spec", 1)


async def test_malformed_pod(api: Api) -> None:
    """A field of a wrong type is a 400."""
    for spec in ("x", {"containers": "x"}, {"containers": [1]}, {"containers": limits(cpu="x")}):
        assert 400 == (await error_of(api.create(api.pods, {"metadata": {"name": "p"}, "spec": spec}))).status


async def test_pod_spec_is_fixed(api: Api) -> None:
    """In a Pod's spec only images may change and tolerations be added, and all annotations and labels may change."""
    await api.create_pod()
    path = f"{api.pods}/p"

    await api.patch(path, {"metadata": {"annotations": {"a": "b"}}})
    await api.patch(path, {"spec": {"containers": [{"name": "main", "image": "other:2"}]}}, "strategic")
    env = [{"name": "A", "value": "b"}]
    refused = await error_of(api.patch(path, {"spec": {"containers": [{"name": "main", "env": env}]}}, "strategic"))

    assert (422, True) == (refused.status, "spec: Forbidden: pod updates may not change fields" in refused.message)
    pod = await api.pod()
    assert ("other:2", 2) == (pod["spec"]["containers"][0]["image"], pod["metadata"]["generation"])


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
async def test_qos_class(api: Api, limits: Any, requests: Any, expected: str) -> None:
    """The QoS class depends on cpu and memory only."""
    pod = await api.create_pod(containers=[asking(requests, limits)])

    assert expected == pod["status"]["qosClass"]


@pytest.mark.other_in("1.35", "a Binding's labels are merged as well")
@pytest.mark.other_in("1.36", "a Binding's labels are merged as well")
@pytest.mark.other_in("1.37", "a Binding's labels are merged as well")
async def test_binding(api: Api) -> None:
    """A Binding sets the Node, merges its annotations and sets PodScheduled in one write, and merges no labels."""
    made = await api.create(api.pods, a_pod(metadata={"annotations": {"own": "1", "both": "1"}}))
    version = made["metadata"]["resourceVersion"]

    new = {"both": "2", "new": "3"}
    answer = await api.bind("p", "n1", uid=made["metadata"]["uid"], annotations=new, labels={"l": "1"})
    await api.patch(f"{api.pods}/p", {"metadata": {"labels": {"last": "1"}}})
    changes = []
    async for _, pod in api.watch(api.pods, version):
        if "labels" in pod["metadata"]:
            break
        changes.append(pod)

    assert ("Status", "Success", 201) == (answer["kind"], answer["status"], answer["code"])
    assert 1 == len(changes)
    pod = changes[0]
    assert "n1" == pod["spec"]["nodeName"]
    assert {"own": "1", **new} == pod["metadata"]["annotations"]
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
    (found,) = pod["status"]["conditions"]
    assert condition == {key: found[key] for key in condition}
    assert "message" not in found
    assert 1 == pod["metadata"]["generation"]


async def test_refused_bindings_change_nothing(api: Api) -> None:
    """A Binding with a wrong uid and a second Binding are 409 Conflicts with stable texts, and change nothing."""
    made = await api.create_pod()
    wrong = await error_of(api.bind("p", "n1", uid="other", annotations={"x": "y"}))
    await api.bind("p", "n1")
    bound = await api.pod()
    second = await refusal_of(api.bind("p", "n2", annotations={"x": "y"}))
    again = await refusal_of(api.bind("p", "n1", uid=made["metadata"]["uid"], annotations={"x": "y"}))

    why = f"Precondition failed: UID in precondition: other, UID in object meta: {made['metadata']['uid']}"
    assert (409, "Conflict", True) == (wrong.status, wrong.reason, wrong.message.endswith(why))
    assert wrong.message.startswith('Operation cannot be fulfilled on pods "p": ')
    why = 'pod p is already assigned to node "n1"'
    assert (409, "Conflict", f'Operation cannot be fulfilled on pods/binding "p": {why}') == second
    assert second == again
    assert bound == await api.pod()


async def test_binding_of_an_older_version_loses(api: Api) -> None:
    """A Binding may name a resourceVersion, and any later write to the Pod, also to its status, makes it a 409."""
    made = (await api.create_pod())["metadata"]
    condition = {"type": "example.com/fence", "status": "True", "message": "1"}
    fence = {"metadata": {"uid": made["uid"]}, "status": {"conditions": [condition]}}
    fenced = await api.patch(f"{api.pods}/p/status", fence, "strategic")
    again = await api.patch(f"{api.pods}/p/status", fence, "strategic")

    version = fenced["metadata"]["resourceVersion"]
    late = await error_of(api.bind("p", "n1", uid=made["uid"], resourceVersion=made["resourceVersion"]))
    why = (
        f"Precondition failed: ResourceVersion in precondition: {made['resourceVersion']}, "
        f"ResourceVersion in object meta: {version}"
    )
    assert (409, "Conflict", True) == (late.status, late.reason, late.message.endswith(why))
    assert version == again["metadata"]["resourceVersion"], "a write without a change changes no version"
    assert fenced == await api.pod()

    await api.bind("p", "n1", uid=made["uid"], resourceVersion=version)
    assert "n1" == (await api.pod())["spec"]["nodeName"]


async def test_status_patch_for_another_uid_is_refused(api: Api) -> None:
    """A patch of a status that names the uid of another Pod is refused, and changes nothing."""
    made = await api.create_pod()
    condition = {"type": "example.com/fence", "status": "True", "message": "1"}

    body = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}, "status": {"conditions": [condition]}}
    error = await error_of(api.patch(f"{api.pods}/p/status", body, "strategic"))

    assert 400 <= error.status < 500
    assert made == await api.pod()


async def test_invalid_bindings(api: Api) -> None:
    """A Binding of a missing Pod is a 404, and one without a Node or to another kind is a 500."""
    await api.create_pod()

    absent = await refusal_of(api.bind("nope"))
    no_node = await refusal_of(api.bind("p", ""))
    body = {"metadata": {"name": "p"}, "target": {"kind": "Minion", "name": "n1"}}
    no_kind = await refusal_of(api.create(f"{api.pods}/p/binding", body))

    assert (404, "NotFound", 'pods "nope" not found') == absent
    assert (500, "", "target.name: Required value") == no_node
    text = 'target.kind: Unsupported value: "Minion": supported values: "Node", "<empty>"'
    assert (500, "", text) == no_kind


async def test_one_of_many_bindings_wins(api: Api) -> None:
    """Of many simultaneous Bindings exactly one takes effect, and every other is a 409."""
    await api.create_pod()

    answers = await asyncio.gather(*(api.bind("p", f"n{i}") for i in range(8)), return_exceptions=True)

    refusals = [answer for answer in answers if isinstance(answer, Exception)]
    assert [409] * 7 == [getattr(refusal, "status", None) for refusal in refusals]


async def test_gated_and_dying_pods_cannot_be_bound(api: Api) -> None:
    """A Pod with scheduling gates or with a deletion time cannot be bound."""
    gated = await api.create_pod("gated", schedulingGates=[{"name": "wait"}])
    await api.create(api.pods, a_pod("dying", metadata={"finalizers": ["a.b/c"]}))
    await api.delete(f"{api.pods}/dying")

    condition = gated["status"]["conditions"][0]
    text = "Scheduling is blocked due to non-empty scheduling gates"
    assert ("False", "SchedulingGated", text) == tuple(condition[key] for key in ("status", "reason", "message"))
    assert "pod gated has non-empty .spec.schedulingGates" in (await error_of(api.bind("gated"))).message
    assert "pod dying is being deleted, cannot be assigned to a host" in (await error_of(api.bind("dying"))).message


async def test_gates_can_only_be_removed(api: Api) -> None:
    """Scheduling gates may be removed, and never added."""
    await api.create_pod(schedulingGates=[{"name": "a"}, {"name": "b"}])
    path = f"{api.pods}/p"

    refused = await error_of(api.patch(path, {"spec": {"schedulingGates": [{"name": "a"}, {"name": "c"}]}}))
    pod = await api.patch(path, {"spec": {"schedulingGates": None}})

    assert 422 == refused.status
    assert "schedulingGates" not in pod["spec"]
    await api.bind("p")


async def test_legacy_bindings_collection(api: Api) -> None:
    """A POST to the namespace's `bindings` binds too."""
    await api.create_pod()

    body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    await api.create(f"{api.place}/bindings", body)

    assert "n1" == (await api.pod())["spec"]["nodeName"]


async def test_eviction(api: Api) -> None:
    """An eviction deletes the Pod with the given delete options."""
    await api.create_pod()
    await api.bind("p")

    body = {"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 5}}
    answer = await api.create(f"{api.pods}/p/eviction", body)

    assert ("Success", 201) == (answer["status"], answer["code"])
    assert 5 == (await api.pod())["metadata"]["deletionGracePeriodSeconds"]


async def test_priority_and_runtime_classes(api: Api, cleanup: list[str]) -> None:
    """A Pod gets the number of its priority class, and is rejected if its priority or runtime class is missing."""
    high = f"high-{api.namespace}"
    cleanup.append(f"/apis/scheduling.k8s.io/v1/priorityclasses/{high}")
    await api.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": high}, "value": 1000})

    pod = await api.create_pod("a", priorityClassName=high)
    critical = await api.create_pod("b", priorityClassName="system-node-critical")
    unknown = await refusal_of(api.create_pod("c", priorityClassName="nope"))
    no_class = await refusal_of(api.create_pod("d", runtimeClassName="none"))

    assert (1000, 2000001000) == (pod["spec"]["priority"], critical["spec"]["priority"])
    assert (403, "Forbidden", 'pods "c" is forbidden: no PriorityClass with name nope was found') == unknown
    text = 'pods "d" is forbidden: pod rejected: RuntimeClass "none" not found'
    assert (403, "Forbidden", text) == no_class


async def test_log_of_a_pod_that_has_none(api: Api) -> None:
    """The log of a Pod without a Node is empty, and that of an unknown or unnamed container is a 400."""
    await api.create_pod()
    await api.create_pod("two", containers=[{"name": name, "image": IMAGE} for name in ("a", "b")])

    unbound = await api.text(f"{api.pods}/p/log")
    unknown = await refusal_of(api.get(f"{api.pods}/p/log", container="other"))
    ambiguous = await refusal_of(api.get(f"{api.pods}/two/log"))

    assert "" == unbound
    assert (400, "BadRequest", "container other is not valid for pod p") == unknown
    text = "a container name must be specified for pod two, choose one of: [a b]"
    assert (400, "BadRequest", text) == ambiguous
