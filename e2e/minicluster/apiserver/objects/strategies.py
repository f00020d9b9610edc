"""
Defaults, validation and updates of each kind except Pods.

Owns the metadata rules of every object (names, uid, generation, immutable fields) and the rules of single kinds. The
uid and the time are arguments. Neighbours: `pods` is the strategy of Pods, `verbs` calls them.
Source: k8s.io/apiserver/pkg/registry/rest/{create,update}.go, k8s.io/apimachinery/pkg/api/validation/objectmeta.go.
"""

import base64
import re

from hamicommon.model import Object
from minicluster.apiserver.api.resources import Resource

Problems = list[tuple[str, str]]
"""Field paths and problems, in the form of field.Error."""

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
QUALIFIED_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

BAD_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
BAD_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
BAD_KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
BAD_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
ANNOTATIONS_LIMIT_BYTES = 256 * 1024
IMMUTABLE = "field is immutable"

KEPT_METADATA = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)
"""The metadata that an update cannot change. It is copied from the stored object."""


class Strategy:
    """The rules of one kind."""

    def default(self, found: Object) -> None:
        """Set the defaults. It is called for every received object, so it must be idempotent."""

    def prepare_create(self, found: Object, now: str) -> None:
        """Reset the fields that a create cannot set."""

    def prepare_update(self, new: Object, old: Object) -> None:
        """Copy from *old* the fields that an update of the object cannot change."""

    def prepare_status(self, new: Object, old: Object) -> None:
        """Copy from *old* the fields that an update of the status cannot change."""
        if "spec" in old:
            new["spec"] = old["spec"]
        else:
            new.pop("spec", None)

    def validate(self, found: Object) -> Problems:
        """Return the problems of *found*."""
        return []

    def validate_update(self, new: Object, old: Object) -> Problems:
        """Return the forbidden changes from *old* to *new*."""
        return []

    is_graceful = False
    """Whether a deletion always marks the object before it removes it."""

    def grace_seconds(self, found: Object, asked: int | None) -> int:
        """Return the grace period of a deletion of *found*."""
        return 0


class KeepsStatus(Strategy):
    """Kinds whose status changes only through the status subresource."""

    def prepare_update(self, new: Object, old: Object) -> None:
        """Keep the old status."""
        if "status" in old:
            new["status"] = old["status"]
        else:
            new.pop("status", None)


class NodeStrategy(KeepsStatus):
    """Nodes. A kubelet registers with a status, which afterwards is a subresource."""

    def default(self, found: Object) -> None:
        """Set allocatable to capacity if it is missing."""
        found.setdefault("spec", {})
        status = found.setdefault("status", {})
        if status.get("capacity") and not status.get("allocatable"):
            status["allocatable"] = dict(status["capacity"])


class NamespaceStrategy(KeepsStatus):
    """Namespaces. They have a label with their name, and are active until deleted."""

    def default(self, found: Object) -> None:
        """Set the label with the name, and the finalizer that a deletion waits for."""
        if found["metadata"].get("name"):
            found["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = found["metadata"]["name"]
        found.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
        found.setdefault("status", {"phase": "Active"})

    def validate(self, found: Object) -> Problems:
        """Check that the name is a DNS label."""
        name = found["metadata"]["name"]
        return [] if _is_label(name) else [("metadata.name", f'Invalid value: "{name}": {BAD_LABEL}')]


class SecretStrategy(Strategy):
    """Secrets. The default type is Opaque, and `stringData` becomes `data`."""

    def default(self, found: Object) -> None:
        """Encode `stringData` and set the type."""
        found.setdefault("type", "Opaque")
        for key, value in (found.pop("stringData", None) or {}).items():
            found.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()


class WebhookStrategy(Strategy):
    """MutatingWebhookConfigurations, with the defaults and the validation of v1."""

    def default(self, found: Object) -> None:
        """Set the defaults of v1."""
        for webhook in found.get("webhooks") or ():
            webhook.setdefault("failurePolicy", "Fail")
            webhook.setdefault("matchPolicy", "Equivalent")
            webhook.setdefault("namespaceSelector", {})
            webhook.setdefault("objectSelector", {})
            webhook.setdefault("reinvocationPolicy", "Never")
            webhook.setdefault("timeoutSeconds", 10)
            for rule in webhook.get("rules") or ():
                rule.setdefault("scope", "*")

    def validate(self, found: Object) -> Problems:
        """Check that names are unique and qualified, and that each webhook has an address and a review version."""
        problems: Problems = []
        seen: set[str] = set()
        for index, webhook in enumerate(found.get("webhooks") or ()):
            field, name = f"webhooks[{index}]", webhook.get("name", "")
            if name.count(".") < 2:
                text = "should be a domain with at least three segments separated by dots"
                problems.append((f"{field}.name", f'Invalid value: "{name}": {text}'))
            if name in seen:
                problems.append((f"{field}.name", f'Duplicate value: "{name}"'))
            seen.add(name)
            problems += _webhook_problems(field, webhook)
        return problems


def _webhook_problems(field: str, webhook: Object) -> Problems:
    problems: Problems = []
    where = webhook.get("clientConfig") or {}
    if ("url" in where) == ("service" in where):
        text = "Required value: exactly one of url or service is required"
        problems.append((f"{field}.clientConfig", text))
    if "url" in where and not where["url"].startswith("https://"):
        text = f"Invalid value: \"{where['url'].split(':', 1)[0]}\": 'https' is the only allowed URL scheme"
        problems.append((f"{field}.clientConfig.url", f"{text}; desired format: https://host[/path]"))
    if not set(webhook.get("admissionReviewVersions") or ()) & {"v1", "v1beta1"}:
        text = "Invalid value: must include at least one of v1, v1beta1"
        problems.append((f"{field}.admissionReviewVersions", text))
    if webhook.get("sideEffects") not in {"None", "NoneOnDryRun"}:
        found = webhook.get("sideEffects")
        text = "Required value: must specify one of None, NoneOnDryRun"
        if found is not None:
            text = f'Unsupported value: "{found}": supported values: "None", "NoneOnDryRun"'
        problems.append((f"{field}.sideEffects", text))
    if not 1 <= webhook["timeoutSeconds"] <= 30:
        text = f"Invalid value: {webhook['timeoutSeconds']}: the timeout value must be between 1 and 30 seconds"
        problems.append((f"{field}.timeoutSeconds", text))
    return problems


class ImmutableFields(Strategy):
    """Kinds with immutable fields."""

    def __init__(self, *fields: str) -> None:
        self._fields = fields

    def validate_update(self, new: Object, old: Object) -> Problems:
        """Reject changes of the immutable fields."""
        return [
            (field, f"Invalid value: {new.get(field)!r}: {IMMUTABLE}")
            for field in self._fields
            if new.get(field) != old.get(field)
        ]


def metadata_problems(resource: Resource, found: Object) -> Problems:
    """Return the problems of the name, labels and annotations of *found*."""
    metadata = found["metadata"]
    problems: Problems = []
    name = metadata.get("name") or ""
    if not name:
        problems.append(("metadata.name", "Required value: name or generateName is required"))
    elif not _is_subdomain(name):
        problems.append(("metadata.name", f'Invalid value: "{name}": {BAD_SUBDOMAIN}'))
    for key, value in (metadata.get("labels") or {}).items():
        if not _is_key(key):
            problems.append(("metadata.labels", f'Invalid value: "{key}": {BAD_KEY}'))
        if len(value) > 63 or (value and not QUALIFIED_NAME.fullmatch(value)):
            problems.append(("metadata.labels", f'Invalid value: "{value}": {BAD_VALUE}'))
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        if not _is_key(key.lower()):
            problems.append(("metadata.annotations", f'Invalid value: "{key}": {BAD_KEY}'))
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_LIMIT_BYTES:
        text = f"Too long: may not be more than {ANNOTATIONS_LIMIT_BYTES} bytes"
        problems.append(("metadata.annotations", text))
    return problems


def _is_subdomain(name: str) -> bool:
    return len(name) <= 253 and DNS_SUBDOMAIN.fullmatch(name) is not None


def _is_label(name: str) -> bool:
    return len(name) <= 63 and DNS_LABEL.fullmatch(name) is not None


def _is_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and not _is_subdomain(prefix):
        return False
    return len(name) <= 63 and QUALIFIED_NAME.fullmatch(name) is not None


def drop_empty(found: Object) -> None:
    """Remove the empty fields of metadata."""
    for field in ("annotations", "labels", "finalizers", "ownerReferences"):
        if not found["metadata"].get(field, True):
            del found["metadata"][field]


def keep_metadata(new: Object, old: Object) -> None:
    """Copy the metadata that only the server sets."""
    for field in KEPT_METADATA:
        new["metadata"].pop(field, None)
        if field in old["metadata"]:
            new["metadata"][field] = old["metadata"][field]
