"""
Defaults, validation and updates of Pods.

Owns the defaults, the validation, the immutable fields and the QoS class of Pods, as far as a service could rely on
them. Service account tokens are not mounted, and fields that no component uses are stored without validation.
Source: k8s.io/kubernetes/pkg/apis/core/v1/defaults.go, pkg/apis/core/validation/validation.go,
pkg/registry/core/pod/strategy.go.
"""

import copy
from typing import Any

from hamicommon.model import Object
from minicluster import quantity
from minicluster.apiserver.objects.strategies import BAD_LABEL, DNS_LABEL, Problems, Strategy
from minicluster.podrequests import containers, is_extended

DEFAULT_GRACE_SECONDS = 30
SPEC_DEFAULTS: Object = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": DEFAULT_GRACE_SECONDS,
    "dnsPolicy": "ClusterFirst",
    "serviceAccountName": "default",
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}
CONTAINER_DEFAULTS: Object = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
PROBE_DEFAULTS: Object = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
NATIVE_RESOURCES = ("cpu", "memory", "ephemeral-storage", "storage", "pods")

GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
OVERCOMMIT = "Required value: Limit must be set for non overcommitable resources"
FIXED_SPEC = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


class PodStrategy(Strategy):
    """Pods."""

    is_graceful = True

    def default(self, found: Object) -> None:
        """Set the defaults of v1."""
        spec = found.setdefault("spec", {})
        for key, value in SPEC_DEFAULTS.items():
            spec.setdefault(key, value)
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
        spec.setdefault("securityContext", {})
        for _, container in containers(spec):
            _default_container(container)
        for volume in spec.get("volumes") or ():
            if len(volume) == 1:
                volume["emptyDir"] = {}
            if isinstance(volume.get("hostPath"), dict):
                volume["hostPath"].setdefault("type", "")
            for source in ("configMap", "secret", "downwardAPI", "projected"):
                if isinstance(volume.get(source), dict):
                    volume[source].setdefault("defaultMode", 0o644)

    def prepare_create(self, found: Object, now: str) -> None:
        """Make a new Pod Pending, whatever its status."""
        found["status"] = {"phase": "Pending", "qosClass": qos_class(found["spec"])}
        if found["spec"].get("schedulingGates"):
            condition = {**GATED, "lastProbeTime": None, "lastTransitionTime": now}
            found["status"]["conditions"] = [condition]

    def prepare_update(self, new: Object, old: Object) -> None:
        """Keep the status, which is a subresource."""
        new["status"] = old.get("status", {})

    def prepare_status(self, new: Object, old: Object) -> None:
        """Keep spec, owners and QoS class. Labels and annotations may change."""
        super().prepare_status(new, old)
        new["metadata"].pop("ownerReferences", None)
        if "ownerReferences" in old["metadata"]:
            new["metadata"]["ownerReferences"] = old["metadata"]["ownerReferences"]
        if "qosClass" in old.get("status", {}):
            new.setdefault("status", {})["qosClass"] = old["status"]["qosClass"]

    def validate(self, found: Object) -> Problems:
        """Check that containers have unique names and valid resources."""
        problems: Problems = []
        spec = found["spec"]
        if not spec.get("containers"):
            problems.append(("spec.containers", "Required value"))
        seen: set[str] = set()
        for field, container in containers(spec):
            name = container.get("name") or ""
            if not name:
                problems.append((f"{field}.name", "Required value"))
            elif len(name) > 63 or not DNS_LABEL.fullmatch(name):
                problems.append((f"{field}.name", f'Invalid value: "{name}": {BAD_LABEL}'))
            elif name in seen:
                problems.append((f"{field}.name", f'Duplicate value: "{name}"'))
            seen.add(name)
            if not container.get("image"):
                problems.append((f"{field}.image", "Required value"))
            problems += _resource_problems(f"{field}.resources", container.get("resources") or {})
        if spec["restartPolicy"] not in {"Always", "OnFailure", "Never"}:
            text = f'Unsupported value: "{spec["restartPolicy"]}": supported values: "Always", "OnFailure", "Never"'
            problems.append(("spec.restartPolicy", text))
        return problems

    def validate_update(self, new: Object, old: Object) -> Problems:
        """Allow changes of images and the deadline, more tolerations, fewer scheduling gates, and no others."""
        if _fixed(new["spec"], old["spec"]) == _fixed(old["spec"], old["spec"]):
            return []
        return [("spec", FIXED_SPEC)]

    def grace_seconds(self, found: Object, asked: int | None) -> int:
        """Return the grace period of a bound Pod, which its kubelet finishes, and 0 for any other."""
        spec, status = found["spec"], found.get("status") or {}
        if not spec.get("nodeName") or status.get("phase") in {"Succeeded", "Failed"}:
            return 0
        if asked is not None:
            return max(asked, 0) if asked >= 0 else 1
        return int(spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS))


def _default_container(container: Object) -> None:
    for key, value in CONTAINER_DEFAULTS.items():
        container.setdefault(key, value)
    image = str(container.get("image") or "")
    tag = image.rsplit("/", 1)[-1].partition(":")[2]
    is_latest = "@" not in image and tag in {"", "latest"}
    container.setdefault("imagePullPolicy", "Always" if is_latest else "IfNotPresent")
    resources = container.setdefault("resources", {})
    for name, limit in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, limit)
    for section in ("limits", "requests"):
        for name, amount in (resources.get(section) or {}).items():
            if isinstance(amount, int | float):
                resources[section][name] = str(amount)
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference:
            reference.setdefault("apiVersion", "v1")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        for key, value in PROBE_DEFAULTS.items() if container.get(probe) else ():
            container[probe].setdefault(key, value)


def _resource_problems(field: str, resources: Object) -> Problems:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    problems: Problems = []
    for section, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            text = _amount_problem(name, amount)
            if text:
                problems.append((f"{field}.{section}[{name}]", f"Invalid value: {text}"))
    if problems:
        return problems
    for name, amount in requests.items():
        if name not in limits:
            if is_extended(name):
                problems.append((f"{field}.limits", OVERCOMMIT))
        elif is_extended(name) and quantity.parse(amount) != quantity.parse(limits[name]):
            text = f'Invalid value: "{amount}": must be equal to {name} limit of {limits[name]}'
            problems.append((f"{field}.requests", text))
        elif quantity.parse(amount) > quantity.parse(limits[name]):
            text = f'Invalid value: "{amount}": must be less than or equal to {name} limit of {limits[name]}'
            problems.append((f"{field}.requests", text))
    return problems


def _amount_problem(name: str, amount: Any) -> str | None:
    try:
        value = quantity.parse(amount)
    except ValueError as error:
        return f'"{amount}": {error}'
    if value < 0:
        return f'"{amount}": must be greater than or equal to 0'
    if is_extended(name) and value.denominator != 1:
        return f'"{amount}": must be an integer'
    if "/" not in name and name not in NATIVE_RESOURCES and not name.startswith("hugepages-"):
        return f'"{name}": must be a standard resource type or fully qualified'
    return None


def _fixed(spec: Object, old: Object) -> Object:
    """Return *spec* with all fields that an update may change reset to *old*."""
    fixed = copy.deepcopy(spec)
    for field in ("containers", "initContainers"):
        for container, before in zip(fixed.get(field) or (), old.get(field) or (), strict=False):
            container["image"] = before.get("image")
    if all(toleration in (spec.get("tolerations") or ()) for toleration in old.get("tolerations") or ()):
        fixed.pop("tolerations", None)
        fixed.update({"tolerations": old["tolerations"]} if "tolerations" in old else {})
    gates = old.get("schedulingGates") or []
    if gates and all(gate in gates for gate in spec.get("schedulingGates") or ()):
        fixed["schedulingGates"] = gates
        # A gated Pod may still be restricted to fewer Nodes.
        for field in ("nodeSelector", "affinity"):
            fixed.pop(field, None)
            fixed.update({field: old[field]} if field in old else {})
    fixed.pop("activeDeadlineSeconds", None)
    fixed.update({"activeDeadlineSeconds": old["activeDeadlineSeconds"]} if "activeDeadlineSeconds" in old else {})
    return fixed


def qos_class(spec: Object) -> str:
    """Return `Guaranteed`, `Burstable` or `BestEffort`, by cpu and memory only."""
    is_guaranteed, asks = True, False
    for _, container in containers(spec):
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            limit, request = quantity.parse(limits.get(name, 0)), quantity.parse(requests.get(name, 0))
            asks = asks or limit > 0 or request > 0
            is_guaranteed = is_guaranteed and limit > 0 and request == limit
    if not asks:
        return "BestEffort"
    return "Guaranteed" if is_guaranteed else "Burstable"
