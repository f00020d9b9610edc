"""
Decide whether a write may happen, and complete the object.

Owns the order of the admission plugins: NamespaceLifecycle, then RuntimeClass, Priority and DefaultTolerationSeconds
for Pods, then the mutating webhooks, then ResourceQuota. Neighbours: `webhooks` and `quota` are plugins, `verbs` calls.
Source: k8s.io/kubernetes/pkg/kubeapiserver/options/plugins.go and plugin/pkg/admission.
"""

from collections.abc import Callable

from hamicommon.model import Object
from minicluster.apiserver.admission.quota import Quotas
from minicluster.apiserver.admission.webhooks import Attempt, Webhooks
from minicluster.apiserver.api import errors
from minicluster.apiserver.api.resources import NAMESPACES, PODS, PRIORITY_CLASSES, RUNTIME_CLASSES
from minicluster.apiserver.store.storage import Storage

SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
NOT_READY_SECONDS = 300
TERMINATING = "unable to create new content in namespace {0} because it is being terminated"


class Admission:
    """All plugins, in order."""

    def __init__(self, storage: Storage, webhooks: Webhooks, quotas: Quotas) -> None:
        self._storage = storage
        self._webhooks = webhooks
        self._quotas = quotas

    async def mutate(self, attempt: Attempt, found: Object, default: Callable[[Object], None]) -> Object:
        """
        Return *found* after admission. *found* itself may be changed.

        Raises: StatusError if the write is rejected.
        """
        if attempt.operation == "CREATE" and not attempt.subresource:
            self._check_namespace(attempt)
            if attempt.resource is PODS:
                self._complete_pod(found)
        return await self._webhooks.mutate(attempt, found, default)

    def book(self, attempt: Attempt, found: Object) -> None:
        """
        Check the valid and complete *found* against quotas. The caller must write without awaiting in between.

        Raises: StatusError 403 if a quota is exceeded.
        """
        if attempt.operation == "CREATE" and attempt.resource is PODS and not attempt.subresource:
            self._quotas.admit(found, attempt.is_dry_run)

    def _check_namespace(self, attempt: Attempt) -> None:
        if not attempt.resource.is_namespaced:
            return
        namespace = self._storage.get(NAMESPACES, attempt.namespace)
        if namespace is None:
            raise errors.not_found("namespaces", attempt.namespace)
        if namespace.fields["status.phase"] == "Terminating":
            name = attempt.name or "Unknown"
            raise errors.forbidden(attempt.resource.qualified, name, TERMINATING.format(attempt.namespace))

    def _complete_pod(self, pod: Object) -> None:
        spec = pod["spec"]
        self._set_priority(pod)
        runtime_class = spec.get("runtimeClassName")
        if runtime_class and self._storage.get(RUNTIME_CLASSES, runtime_class) is None:
            why = f'pod rejected: RuntimeClass "{runtime_class}" not found'
            raise errors.forbidden("pods", pod["metadata"].get("name", ""), why)
        tolerations = spec.setdefault("tolerations", [])
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
            if not any(_tolerates(toleration, key) for toleration in tolerations):
                tolerations.append(
                    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": NOT_READY_SECONDS}
                )

    def _set_priority(self, pod: Object) -> None:
        spec = pod["spec"]
        name = spec.get("priorityClassName")
        if not name:
            spec["priority"] = 0
        elif name in SYSTEM_PRIORITIES:
            spec["priority"] = SYSTEM_PRIORITIES[name]
        else:
            entry = self._storage.get(PRIORITY_CLASSES, name)
            if entry is None:
                why = f"no PriorityClass with name {name} was found"
                raise errors.forbidden("pods", pod["metadata"].get("name", ""), why)
            found = entry.load()
            spec["priority"] = found.get("value", 0)
            spec["preemptionPolicy"] = found.get("preemptionPolicy", "PreemptLowerPriority")


def _tolerates(toleration: Object, key: str) -> bool:
    return toleration.get("key") in {key, None, ""} and toleration.get("effect") in {"NoExecute", None, ""}
