"""
Call mutating admission webhooks.

Owns the matching of webhooks, the AdmissionReview, TLS with the configured bundle, the failure policy and
reinvocation. Must never decide anything else about a request. `matchConditions` are stored and not evaluated.
Source: k8s.io/apiserver/pkg/admission/plugin/webhook/{mutating,generic,errors}, KEP-1872; AdmissionReview:
k8s.io/api/admission/v1.
"""

import base64
import errno
import ssl
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import aiohttp
import orjson

from hamicommon.model import Object
from minicluster import selection
from minicluster.apiserver.api import errors, patches
from minicluster.apiserver.api.resources import NAMESPACES, WEBHOOKS, Resource
from minicluster.apiserver.api.warnings import WARNINGS
from minicluster.apiserver.store.storage import Storage

USER = {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]}
"""The user of every request, because this server does not authenticate."""

DENIED = 'admission webhook "{name}" denied the request'
CALL_FAILED = 'failed calling webhook "{name}": {why}'


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request, as admission needs it."""

    operation: str
    """`CREATE`, `UPDATE` or `DELETE`."""
    resource: Resource
    namespace: str
    name: str
    subresource: str
    old: Object | None
    is_dry_run: bool


class CallError(Exception):
    """A webhook could not be called."""

    def __str__(self) -> str:
        return f"failed to call webhook: {super().__str__()}"


class AnswerError(CallError):
    """The answer of a webhook is invalid."""

    def __str__(self) -> str:
        return f"received invalid webhook response: {Exception.__str__(self)}"


class Webhooks:
    """The mutating webhooks configured in *storage*."""

    def __init__(self, storage: Storage, services: Mapping[str, str]) -> None:
        self._storage = storage
        self._services = services
        """The `host:port` of each Service `namespace/name`, because there is no service network."""
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def mutate(self, attempt: Attempt, found: Object, default: Callable[[Object], None]) -> Object:
        """
        Return *found* after all webhooks. `default` completes the object after each patch.

        Raises: StatusError if a webhook denies the request, or fails with policy Fail.
        """
        seen: list[tuple[Object, Object]] = []
        for webhook in self._configured(attempt):
            if self._concerns(webhook, attempt, found):
                found = await self._apply(webhook, attempt, found, default)
                seen.append((webhook, found))
        for webhook, left in seen:
            if webhook["reinvocationPolicy"] == "IfNeeded" and left != found:
                found = await self._apply(webhook, attempt, found, default)
        return found

    async def _apply(
        self, webhook: Object, attempt: Attempt, found: Object, default: Callable[[Object], None]
    ) -> Object:
        try:
            review = await self._call(webhook, attempt, found)
            answer = review.get("response") or {}
            WARNINGS.get().extend(answer.get("warnings") or ())
            if not answer.get("allowed"):
                raise _denial(webhook["name"], answer.get("status") or {})
            if not answer.get("patch"):
                return found
            if answer.get("patchType") != "JSONPatch":
                raise AnswerError(f"unsupported patch type {answer.get('patchType')!r}")
            found = patches.json_patch(found, orjson.loads(base64.b64decode(answer["patch"])))
            default(found)
            return found
        except (CallError, patches.PatchError, ValueError) as error:
            if webhook["failurePolicy"] == "Ignore":
                return found
            raise errors.internal(CALL_FAILED.format(name=webhook["name"], why=error)) from error

    async def _call(self, webhook: Object, attempt: Attempt, found: Object) -> Object:
        version = next(v for v in webhook["admissionReviewVersions"] if v in {"v1", "v1beta1"})
        request = _request(attempt, found)
        review = {"kind": "AdmissionReview", "apiVersion": f"admission.k8s.io/{version}", "request": request}
        url, host_name = self._address(webhook["clientConfig"])
        if self._session is None:
            self._session = aiohttp.ClientSession(headers={"User-Agent": "kube-apiserver-admission"})
        limit = webhook["timeoutSeconds"]
        try:
            async with self._session.post(
                f"{url}?timeout={limit}s",
                data=orjson.dumps(review),
                headers={"Content-Type": "application/json", "Accept": "application/json, */*"},
                ssl=self._context(webhook["clientConfig"].get("caBundle", "")),
                server_hostname=host_name,
                timeout=aiohttp.ClientTimeout(total=limit),
            ) as response:
                content = await response.read()
        except TimeoutError as error:
            raise CallError(f'Post "{url}?timeout={limit}s": context deadline exceeded') from error
        except (aiohttp.ClientError, OSError) as error:
            raise CallError(f'Post "{url}?timeout={limit}s": {_described(error)}') from error
        if response.status != 200:
            raise CallError(f"the server returned {response.status}: {content[:200].decode('utf-8', 'replace')}")
        return _checked_review(content, review)

    def _address(self, where: Object) -> tuple[str, str | None]:
        """Return the URL to call, and the name its certificate must have, or None for the host of the URL."""
        if "url" in where:
            return where["url"], None
        service = where["service"]
        place = f"{service['namespace']}/{service['name']}"
        address = self._services.get(place)
        if address is None:
            raise CallError(f'service "{service["name"]}" not found in namespace {service["namespace"]!r} (--service)')
        path = service.get("path") or "/"
        return f"https://{address}{path}", f"{service['name']}.{service['namespace']}.svc"

    def _context(self, bundle: str) -> ssl.SSLContext:
        context = self._contexts.get(bundle)
        if context is None:
            try:
                pem = base64.b64decode(bundle).decode("ascii") if bundle else None
                context = ssl.create_default_context(cadata=pem)
                # Like the real API server, written in Go, accept certificates without the key identifiers that Python
                # requires since 3.13.
                context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            except (ValueError, ssl.SSLError) as error:
                raise CallError(f"caBundle holds no certificates: {error}") from error
            self._contexts[bundle] = context
        return context

    def _configured(self, attempt: Attempt) -> Iterator[Object]:
        """Yield all webhooks, sorted by configuration. None applies to a configuration, which may need a repair."""
        collection = self._storage.collections[WEBHOOKS]
        for key in list(collection.range("")) if attempt.resource is not WEBHOOKS else ():
            entry = collection.entries.get(key)
            yield from (entry.load().get("webhooks") or ()) if entry else ()

    def _concerns(self, webhook: Object, attempt: Attempt, found: Object) -> bool:
        if not any(_rule_matches(rule, attempt) for rule in webhook.get("rules") or ()):
            return False
        if not self._namespace_matches(webhook["namespaceSelector"], attempt, found):
            return False
        selects = selection.label_selector_object(webhook["objectSelector"])
        candidates = [found, attempt.old] if attempt.old is not None else [found]
        return any(selects((candidate["metadata"].get("labels")) or {}) for candidate in candidates)

    def _namespace_matches(self, selector: Object, attempt: Attempt, found: Object) -> bool:
        """A cluster-wide object other than a Namespace is never excluded by a namespace selector."""
        if attempt.resource is NAMESPACES:
            labels = found["metadata"].get("labels") or {}
        elif attempt.resource.is_namespaced:
            namespace = self._storage.get(NAMESPACES, attempt.namespace)
            labels = namespace.labels if namespace else {}
        else:
            return True
        return selection.label_selector_object(selector)(labels)


def _described(error: Exception) -> str:
    """Return why a connection failed, for a closed port with Go's text."""
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno == errno.ECONNREFUSED:
        return f"dial tcp {error.host}:{error.port}: connect: connection refused"
    return str(error)


def _rule_matches(rule: Object, attempt: Attempt) -> bool:
    resource = attempt.resource
    path = f"{resource.plural}/{attempt.subresource}" if attempt.subresource else resource.plural
    wanted = {path, "*/*", f"{resource.plural}/*"} | (
        {"*"} if not attempt.subresource else {f"*/{attempt.subresource}"}
    )
    scope = "Namespaced" if resource.is_namespaced else "Cluster"
    return (
        bool({attempt.operation, "*"} & set(rule.get("operations") or ()))
        and bool({resource.group, "*"} & set(rule.get("apiGroups") or ()))
        and bool({resource.version, "*"} & set(rule.get("apiVersions") or ()))
        and bool(wanted & set(rule.get("resources") or ()))
        and rule.get("scope", "*") in {"*", scope}
    )


def _request(attempt: Attempt, found: Object) -> Object:
    resource = attempt.resource
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    place = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    request: Object = {"uid": str(uuid.uuid4()), "kind": kind, "resource": place}
    if attempt.subresource:
        request["subResource"] = request["requestSubResource"] = attempt.subresource
    request |= {"requestKind": kind, "requestResource": place}
    if attempt.name:
        request["name"] = attempt.name
    if attempt.namespace:
        request["namespace"] = attempt.namespace
    options = f"{attempt.operation.title()}Options"
    return request | {
        "operation": attempt.operation,
        "userInfo": USER,
        "object": None if attempt.operation == "DELETE" else found,
        "oldObject": attempt.old,
        "dryRun": attempt.is_dry_run,
        "options": {"kind": options, "apiVersion": "meta.k8s.io/v1"},
    }


def _checked_review(content: bytes, sent: Object) -> Object:
    try:
        review: Object = orjson.loads(content)
        answer = review["response"]
        uid = answer["uid"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise CallError(f"the answer is no AdmissionReview with a response: {error}") from error
    if sent["apiVersion"].endswith("/v1"):
        if uid != sent["request"]["uid"]:
            raise AnswerError(f'expected response.uid="{sent["request"]["uid"]}", got "{uid}"')
        found = (review.get("apiVersion"), review.get("kind"))
        if found != (sent["apiVersion"], "AdmissionReview"):
            raise AnswerError(f"expected webhook response of {sent['apiVersion']}, Kind=AdmissionReview, got {found}")
    elif answer.get("patch"):
        answer.setdefault("patchType", "JSONPatch")
    return review


def _denial(name: str, status: Object) -> errors.StatusError:
    text = status.get("message") or status.get("reason")
    denied = DENIED.format(name=name)
    message = f"{denied}: {text}" if text else f"{denied} without explanation"
    code = max(int(status.get("code") or 0), 400)
    return errors.StatusError(code, str(status.get("reason") or ""), message, status.get("details"))
