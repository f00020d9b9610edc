"""
The discovery documents: version, groups, resources.

Owns `/version`, `/api`, `/apis` and `/openapi`. The OpenAPI documents have no schemas. They only say that the server
validates the fields of every patch, because kubectl requires that before it applies an object.
Source: kubectl's pkg/validation and QueryParamVerifierV3.
"""

from hamicommon.model import Object
from minicluster.apiserver.api.resources import REVIEWS, STORED, VERBS, Resource

VERSION: Object = {
    "major": "1",
    "minor": "34",
    "gitVersion": "v1.34.4",
    "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "go1.24.0",
    "compiler": "gc",
    "platform": "linux/amd64",
}
"""The version whose behaviour this server has. The commit identifies the embedded cluster."""

SUBRESOURCE_KINDS = {
    "binding": ("Binding", "", "v1", ["create"]),
    "eviction": ("Eviction", "policy", "v1", ["create"]),
    "log": ("Pod", "", "", ["get"]),
    "portforward": ("PodPortForwardOptions", "", "v1", ["create", "get"]),
}


def document(path: str) -> Object | None:
    """Return the document at *path*, or None for other paths."""
    if path == "/version":
        return VERSION
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        groups = [_group(name) for name in _groups() if name]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if path == "/api/v1":
        return _resources("", "v1")
    if path == "/openapi/v2":
        return _openapi(STORED) | {"swagger": "2.0"}
    if path == "/openapi/v3":
        roots = {_root(resource): {"serverRelativeURL": f"/openapi/v3/{_root(resource)}"} for resource in STORED}
        return {"paths": roots}
    parts = path.strip("/").split("/")
    if path.startswith("/openapi/v3/"):
        found = [resource for resource in STORED if _root(resource) == "/".join(parts[2:])]
        return _openapi(found) | {"openapi": "3.0.0"} if found else None
    if parts[0] == "apis" and len(parts) == 2 and parts[1] in _groups():
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1])}
    if parts[0] == "apis" and len(parts) == 3 and parts[1] in _groups():
        return _resources(parts[1], parts[2])
    return None


def _groups() -> list[str]:
    return list(dict.fromkeys(resource.group for resource in STORED + REVIEWS))


def _group(name: str) -> Object:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _root(resource: Resource) -> str:
    return f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"


def _resources(group: str, version: str) -> Object | None:
    rows: list[Object] = []
    for resource in STORED + REVIEWS:
        if (resource.group, resource.version) != (group, version):
            continue
        row = {
            "name": resource.plural,
            "singularName": resource.kind.lower(),
            "namespaced": resource.is_namespaced,
            "kind": resource.kind,
            "verbs": ["create"] if resource in REVIEWS else list(VERBS),
        }
        for field in ("short_names", "categories"):
            if getattr(resource, field):
                row[field.replace("short_names", "shortNames")] = list(getattr(resource, field))
        rows += [row, *(_subresource(resource, name) for name in resource.subresources)]
    if not rows:
        return None
    name = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": rows}


def _subresource(resource: Resource, name: str) -> Object:
    kind, group, version, verbs = SUBRESOURCE_KINDS.get(name, (resource.kind, "", "", ["get", "patch", "update"]))
    row: Object = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.is_namespaced,
        "kind": kind,
        "verbs": verbs,
    }
    return row | ({"group": group, "version": version} if version else {})


def _openapi(resources: tuple[Resource, ...] | list[Resource]) -> Object:
    paths = {}
    for resource in resources:
        place = "namespaces/{namespace}/" if resource.is_namespaced else ""
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        paths[f"/{_root(resource)}/{place}{resource.plural}/{{name}}"] = {
            "patch": {
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": kind,
                "parameters": [{"name": "fieldValidation", "in": "query", "uniqueItems": True, "type": "string"}],
                "responses": {"200": {"description": "OK"}},
            }
        }
    return {"info": {"title": "Kubernetes", "version": VERSION["gitVersion"]}, "paths": paths}
