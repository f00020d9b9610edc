"""
The resources of the API server.

Owns names, scopes, verbs and selectable fields, one row for each resource. Must never hold an object or the logic of a
kind.
Source: k8s.io/kubernetes/pkg/registry/*/strategy.go and pkg/apis/core/v1/conversion.go (field labels).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")

METADATA_FIELDS = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True, eq=False)
class Resource:
    """A kind of object, with its names and properties."""

    group: str
    """Empty for the core group."""
    version: str
    plural: str
    kind: str
    is_namespaced: bool = True
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    """The fields of field selectors, beside name and namespace."""
    categories: tuple[str, ...] = ()
    returns_deleted: bool = False
    """The answer to a DELETE that removes the object is the object, not a `Status`."""
    creates_on_update: bool = False
    """A PUT of a missing object creates it."""
    needs_version: bool = False
    """A PUT must have a resourceVersion."""
    has_generation: bool = False
    """`metadata.generation` counts changes outside metadata and status."""

    @property
    def api_version(self) -> str:
        """`v1` or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The name in messages: `pods`, `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def selectable(self) -> tuple[str, ...]:
        """All fields of field selectors."""
        return METADATA_FIELDS + self.fields

    def key(self, namespace: str, name: str) -> str:
        """Return the storage key of an object. Lists are sorted by it."""
        return f"{namespace}/{name}" if self.is_namespaced else name

    def field_values(self, found: Mapping[str, Any]) -> dict[str, str]:
        """Return the selectable fields of an object. Missing ones are empty."""
        values = {"metadata.name": found["metadata"]["name"]}
        if self.is_namespaced:
            values["metadata.namespace"] = found["metadata"]["namespace"]
        for field in self.fields:
            values[field] = _text(found, field)
        return values


def _text(found: Any, field: str) -> str:
    for part in field.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if isinstance(found, bool):
        return "true" if found else "false"
    return "" if found is None else str(found)


PODS = Resource(
    "",
    "v1",
    "pods",
    "Pod",
    short_names=("po",),
    subresources=("status", "binding", "eviction", "log", "portforward"),
    categories=("all",),
    returns_deleted=True,
    has_generation=True,
    fields=(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
)
NODES = Resource(
    "", "v1", "nodes", "Node", False, short_names=("no",), subresources=("status",), fields=("spec.unschedulable",)
)
EVENTS = Resource(
    "",
    "v1",
    "events",
    "Event",
    short_names=("ev",),
    creates_on_update=True,
    fields=(
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "type",
    ),
)
NAMESPACES = Resource(
    "", "v1", "namespaces", "Namespace", False, short_names=("ns",), subresources=("status",), fields=("status.phase",)
)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", short_names=("cm",))
SECRETS = Resource("", "v1", "secrets", "Secret", fields=("type",))
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", short_names=("sa",), returns_deleted=True)
RESOURCE_QUOTAS = Resource(
    "", "v1", "resourcequotas", "ResourceQuota", short_names=("quota",), subresources=("status",), returns_deleted=True
)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", creates_on_update=True, needs_version=True)
WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    False,
    categories=("api-extensions",),
    has_generation=True,
)
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, short_names=("pc",), has_generation=True
)
DISRUPTION_BUDGETS = Resource(
    "policy",
    "v1",
    "poddisruptionbudgets",
    "PodDisruptionBudget",
    short_names=("pdb",),
    subresources=("status",),
    has_generation=True,
)
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)

STORED = (
    PODS,
    NODES,
    EVENTS,
    NAMESPACES,
    CONFIG_MAPS,
    SECRETS,
    SERVICE_ACCOUNTS,
    RESOURCE_QUOTAS,
    LEASES,
    WEBHOOKS,
    PRIORITY_CLASSES,
    DISRUPTION_BUDGETS,
    RUNTIME_CLASSES,
)

REVIEWS = (
    Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False),
    Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False),
    Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False),
)
"""Resources that are answered at once and never stored. Only `create` is allowed."""

BY_KIND = {(resource.api_version, resource.kind): resource for resource in STORED}

BY_PATH = {(resource.group, resource.version, resource.plural): resource for resource in STORED + REVIEWS}
