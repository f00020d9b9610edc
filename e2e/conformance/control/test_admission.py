"""
Admission: mutating webhooks, quotas and their order.
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio

from conformance.peers.clusters import Peer
from conformance.peers.objects import Api, a_pod, error_of, limits, refusal_of
from conformance.peers.webhooks import CONFIGURATIONS, SENTINEL, Webhook, webhook
from hamicommon.model import Object
from testbed.waiting import eventually

GPU = "nvidia.com/gpu"
SET_SCHEDULER = {"op": "replace", "path": "/spec/schedulerName", "value": "hami-scheduler"}


@pytest_asyncio.fixture(loop_scope="session")
async def hook(peer: Peer, tmp_path: Path) -> AsyncIterator[Webhook]:
    """Yield a webhook that listens."""
    async with webhook(peer, tmp_path) as found:
        yield found


def patching(*operations: Object) -> Callable[[Object], Object]:
    """Return an answer that applies a JSON patch."""
    patch = base64.b64encode(orjson.dumps(list(operations))).decode()
    return lambda request: {"allowed": True, "patchType": "JSONPatch", "patch": patch}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_webhook_sees_and_changes(api: Api, hook: Webhook, cleanup: list[str], version: str) -> None:
    """A webhook sees the Pod with its defaults, schedulerName among them, and its JSON patch is applied."""
    await hook.install(api, cleanup, hook.described(api, admissionReviewVersions=[version]))
    hook.answer = patching(SET_SCHEDULER)

    pod = await api.create_pod()

    (review,) = hook.reviews
    request = review["request"]
    assert "hami-scheduler" == pod["spec"]["schedulerName"]
    assert f"admission.k8s.io/{version}" == review["apiVersion"]
    assert "default-scheduler" == request["object"]["spec"]["schedulerName"]
    assert ("Pod", "v1") == (request["object"]["kind"], request["object"]["apiVersion"])
    assert {"group": "", "version": "v1", "resource": "pods"} == request["resource"]
    assert ("CREATE", api.namespace, "p", False, None) == tuple(
        request[key] for key in ("operation", "namespace", "name", "dryRun", "oldObject")
    )
    assert ["timeout=10s"] == hook.queries


async def test_webhook_sees_what_other_plugins_set(api: Api, hook: Webhook, cleanup: list[str]) -> None:
    """Priority, tolerations and status of a new Pod are set before a webhook sees it; it has no uid yet."""
    await hook.install(api, cleanup)

    await api.create_pod()

    seen = hook.reviews[0]["request"]["object"]
    assert (0, 2) == (seen["spec"]["priority"], len(seen["spec"]["tolerations"]))
    assert None is seen["metadata"].get("uid")
    assert None is seen["metadata"].get("creationTimestamp")


async def test_generated_name_at_admission(api: Api, hook: Webhook, cleanup: list[str]) -> None:
    """A webhook sees a Pod with generateName before the name is generated."""
    await hook.install(api, cleanup)

    await api.create(api.pods, {**a_pod(), "metadata": {"generateName": "x-"}})

    request = hook.reviews[0]["request"]
    assert ("x-", None, None) == (
        request["object"]["metadata"]["generateName"],
        request["object"]["metadata"].get("name"),
        request.get("name"),
    )


async def test_dry_run_reaches_the_webhook(api: Api, hook: Webhook, cleanup: list[str]) -> None:
    """A webhook without side effects is called in a dry run too, with dryRun set."""
    await hook.install(api, cleanup)

    await api.create(api.pods, a_pod(), dryRun="All")

    assert [True] == [review["request"]["dryRun"] for review in hook.reviews]


async def test_binding_and_updates_pass_by(api: Api, hook: Webhook, cleanup: list[str]) -> None:
    """A webhook for the creation of Pods is not called for bindings, statuses, updates and deletions."""
    await hook.install(api, cleanup)
    await api.create_pod()
    await api.bind("p")
    await api.patch(f"{api.pods}/p", {"metadata": {"labels": {"a": "b"}}})
    await api.patch(f"{api.pods}/p/status", {"status": {"phase": "Running"}})
    await api.delete(f"{api.pods}/p", 0)

    assert 1 == len(hook.reviews)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            {"code": 403, "reason": "Forbidden", "message": "no"},
            (403, "Forbidden", 'admission webhook "a.hami.io" denied the request: no'),
        ),
        ({"code": 400, "message": "no"}, (400, "", 'admission webhook "a.hami.io" denied the request: no')),
        ({"message": "no"}, (400, "", 'admission webhook "a.hami.io" denied the request: no')),
        ({}, (400, "", 'admission webhook "a.hami.io" denied the request without explanation')),
    ],
)
async def test_denial(api: Api, hook: Webhook, cleanup: list[str], status: Any, expected: Any) -> None:
    """A webhook's denial reaches the user with its code and reason, and the webhook's name before its message."""
    await hook.install(api, cleanup)
    hook.answer = lambda request: {"allowed": False, "status": status}

    assert expected == await refusal_of(api.create_pod())


@pytest.mark.parametrize(("policy", "status"), [("Fail", 500), ("Ignore", None)])
async def test_failure_policy(api: Api, hook: Webhook, cleanup: list[str], policy: str, status: Any) -> None:
    """If a webhook is down, Fail rejects with a text that names webhook and URL, and Ignore continues."""
    down = hook.described(api, failurePolicy=policy)
    down["clientConfig"]["url"] = "https://127.0.0.1:1/mutate"
    await hook.install(api, cleanup, down)

    if status is None:
        assert "p" == (await api.create_pod())["metadata"]["name"]
        return
    error = await error_of(api.create_pod())
    url = "https://127.0.0.1:1/mutate?timeout=10s"
    call = f'failed calling webhook "a.hami.io": failed to call webhook: Post "{url}"'
    text = f"Internal error occurred: {call}: dial tcp 127.0.0.1:1: connect: connection refused"
    assert (status, "InternalError", text) == (error.status, error.reason, error.message)


async def test_answer_that_is_none(api: Api, hook: Webhook, cleanup: list[str]) -> None:
    """A webhook's answer with the uid of another request is a failure of the webhook."""
    await hook.install(api, cleanup)
    hook.answer = lambda request: {"allowed": True, "uid": "other"}

    code, reason, text = await refusal_of(api.create_pod())

    assert (500, "InternalError") == (code, reason)
    assert text.startswith('Internal error occurred: failed calling webhook "a.hami.io": received invalid webhook resp')


async def test_webhook_that_is_slow(api: Api, hook: Webhook, cleanup: list[str]) -> None:
    """A webhook that takes longer than its timeoutSeconds fails."""
    silent = hook.described(api, timeoutSeconds=1)
    silent["clientConfig"]["url"] = f"{hook.mute}/mutate"
    await hook.install(api, cleanup, silent)

    code, reason, text = await refusal_of(api.create_pod())

    assert (500, "InternalError") == (code, reason)
    assert text.endswith("context deadline exceeded")


async def test_certificate_of_a_webhook(api: Api, hook: Webhook, cleanup: list[str]) -> None:
    """A webhook is trusted only by the caBundle of its configuration."""
    foreign = hook.described(api)
    del foreign["clientConfig"]["caBundle"]
    await hook.install(api, cleanup, foreign)

    error = await error_of(api.create_pod())

    assert (500, "InternalError", []) == (error.status, error.reason, hook.reviews)
    assert "certificate" in error.message


async def test_bundle_that_is_patched_in(api: Api, hook: Webhook, cleanup: list[str]) -> None:
    """A caBundle that is patched into a configuration is used for the next request."""
    foreign = hook.described(api)
    del foreign["clientConfig"]["caBundle"]
    made = await hook.install(api, cleanup, foreign)
    assert 500 == (await error_of(api.create_pod("early"))).status

    entry = {"name": "a.hami.io", "clientConfig": {"caBundle": hook.bundle}}
    path = f"{CONFIGURATIONS}/{made['metadata']['name']}"
    patched = await api.patch(path, {"webhooks": [entry]}, "strategic")

    async def is_trusted() -> Object:
        found: Object = await api.create_pod()
        return found

    await eventually(is_trusted)
    assert [SENTINEL, "a.hami.io"] == [found["name"] for found in patched["webhooks"]]
    assert [hook.bundle] * 2 == [found["clientConfig"]["caBundle"] for found in patched["webhooks"]]
    assert (1, 2) == (made["metadata"]["generation"], patched["metadata"]["generation"])


async def test_bundle_by_json_patch(api: Api, hook: Webhook, cleanup: list[str]) -> None:
    """A JSON patch that tests the webhook's name changes the caBundle of that webhook only."""
    made = await hook.install(api, cleanup)
    path = f"{CONFIGURATIONS}/{made['metadata']['name']}"
    change = {"op": "replace", "path": "/webhooks/1/clientConfig/caBundle", "value": ""}

    refused = await error_of(
        api.patch(path, [{"op": "test", "path": "/webhooks/1/name", "value": "b"}, change], "json")
    )
    await api.patch(path, [{"op": "test", "path": "/webhooks/1/name", "value": "a.hami.io"}, change], "json")

    assert 422 == refused.status
    assert not (await api.get(path))["webhooks"][1]["clientConfig"].get("caBundle")


IGNORE = {"matchExpressions": [{"key": "hami.io/webhook", "operator": "NotIn", "values": ["ignore"]}]}


@pytest.mark.parametrize(
    ("fields", "is_asked"),
    [
        ({}, True),
        ({"objectSelector": IGNORE}, False),
        ({"objectSelector": {"matchLabels": {"hami.io/webhook": "ignore"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}, False),
        ({"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]}}, False),
        ({"rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]}, True),
        ({"rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"]}]}, False),
    ],
)
async def test_who_is_asked(api: Api, hook: Webhook, cleanup: list[str], fields: Object, is_asked: bool) -> None:
    """Rules, the Pod's labels and its namespace's labels decide whether a webhook is called."""
    await hook.install(api, cleanup, hook.described(api, **fields))

    await api.create(api.pods, a_pod(metadata={"labels": {"hami.io/webhook": "ignore"}}))

    assert is_asked is (len(hook.reviews) == 1)


async def test_webhook_is_asked_again(api: Api, hook: Webhook, cleanup: list[str]) -> None:
    """A webhook with reinvocationPolicy IfNeeded is called again if a later one changed the object."""
    again = hook.described(api, "a.hami.io", reinvocationPolicy="IfNeeded")
    await hook.install(api, cleanup, again, hook.described(api, "b.hami.io"))
    label = {"op": "add", "path": "/metadata/labels", "value": {"changed": "yes"}}

    def answer(request: Object) -> Object:
        return patching(label)(request) if len(hook.reviews) == 2 else {"allowed": True}

    hook.answer = answer

    pod = await api.create_pod()

    assert {"changed": "yes"} == pod["metadata"]["labels"]
    assert [None, None, {"changed": "yes"}] == [r["request"]["object"]["metadata"].get("labels") for r in hook.reviews]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"sideEffects": "Some"}, 'webhooks[0].sideEffects: Unsupported value: "Some"'),
        ({"admissionReviewVersions": ["v2"]}, "webhooks[0].admissionReviewVersions: Invalid value"),
        ({"clientConfig": {"url": "http://x"}}, "Invalid value"),
        ({"timeoutSeconds": 31}, "webhooks[0].timeoutSeconds: Invalid value: 31"),
    ],
)
async def test_configuration_that_could_never_work(api: Api, hook: Webhook, fields: Any, expected: str) -> None:
    """An invalid webhook configuration is rejected with the wrong field."""
    body = {"metadata": {"name": f"bad-{api.namespace}"}, "webhooks": [hook.described(api, **fields)]}

    error = await error_of(api.create(CONFIGURATIONS, body))

    assert (422, "Invalid", True) == (error.status, error.reason, expected in error.message)


async def test_configuration_defaults(api: Api, hook: Webhook, cleanup: list[str]) -> None:
    """A webhook configuration gets its defaults: Fail, Equivalent, Never, ten seconds, any scope."""
    made = (await hook.install(api, cleanup))["webhooks"][1]

    assert ("Fail", "Equivalent", "Never", 10, {}) == tuple(
        made[key] for key in ("failurePolicy", "matchPolicy", "reinvocationPolicy", "timeoutSeconds", "objectSelector")
    )
    assert "*" == made["rules"][0]["scope"]


# --- quotas --------------------------------------------------------------------------------------------------------


async def a_quota(api: Api, name: str = "q", **hard: Any) -> str:
    """Create a ResourceQuota, wait until it is enforced, and return its path."""
    path = f"{api.place}/resourcequotas"
    await api.create(path, {"metadata": {"name": name}, "spec": {"hard": hard}})

    async def is_in_force() -> bool:
        return set((await api.get(f"{path}/{name}"))["status"].get("used", ())) == set(hard)

    await eventually(is_in_force)
    return f"{path}/{name}"


async def test_quota(api: Api) -> None:
    """A quota counts a Pod's requests at its creation, rejects an excess with a message, and frees them at its end."""
    path = await a_quota(api, **{f"requests.{GPU}": "2", "pods": "10"})
    await api.create_pod("a", containers=limits(**{GPU: 2}))

    async def is_counted() -> bool:
        return bool((await api.get(path))["status"]["used"] == {f"requests.{GPU}": "2", "pods": "1"})

    await eventually(is_counted)
    refused = await refusal_of(api.create_pod("b", containers=limits(**{GPU: 1})))
    await api.delete(f"{api.pods}/a")

    async def is_given_back() -> bool:
        return bool((await api.get(path))["status"]["used"][f"requests.{GPU}"] == "0")

    amounts = [f"requests.{GPU}={amount}" for amount in (1, 2, 2)]
    why = f"exceeded quota: q, requested: {amounts[0]}, used: {amounts[1]}, limited: {amounts[2]}"
    assert (403, "Forbidden", f'pods "b" is forbidden: {why}') == refused
    await eventually(is_given_back)


async def test_quota_on_cpu(api: Api) -> None:
    """A quota on cpu requires that every container requests cpu."""
    await a_quota(api, **{"requests.cpu": "2"})

    refused = await refusal_of(api.create_pod())

    text = 'pods "p" is forbidden: failed quota: q: must specify requests.cpu for: main'
    assert (403, "Forbidden", text) == refused


async def test_quota_and_simultaneous_requests(api: Api) -> None:
    """Simultaneous requests never exceed a quota."""
    await a_quota(api, pods="3")

    await asyncio.gather(*(api.create_pod(f"p{i}") for i in range(10)), return_exceptions=True)

    assert 3 == len(await api.names(api.pods))


async def test_quota_counts_what_the_webhook_left(api: Api, hook: Webhook, cleanup: list[str]) -> None:
    """A quota counts the Pod after the webhooks have changed it."""
    await a_quota(api, **{f"requests.{GPU}": "2"})
    await hook.install(api, cleanup)
    amounts = {"limits": {GPU: "3"}, "requests": {GPU: "3"}}
    hook.answer = patching({"op": "replace", "path": "/spec/containers/0/resources", "value": amounts})

    code, _, text = await refusal_of(api.create_pod(containers=limits(**{GPU: 1})))

    why = f"exceeded quota: q, requested: requests.{GPU}=3, used: requests.{GPU}=0, limited: requests.{GPU}=2"
    assert (403, f'pods "p" is forbidden: {why}') == (code, text)
