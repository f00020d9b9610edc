"""
A Pod's volumes, as directories and files of this machine.

Owns `.volumes/` below the Pod's folder. Knows emptyDir, hostPath, configMap, secret, downwardAPI and projected volumes.
Must never change a host path except to create it as its type requires. Neighbours: `podspec` resolves references.
"""

from collections.abc import Mapping
from pathlib import Path

from hamicommon.model import Object
from minicluster.kubelet.podspec import (
    Container,
    ContainerError,
    Contents,
    containers_by_name,
    field,
    resource_field,
    whole_object,
)
from minicluster.kubelet.runtime.isolation import Mount


def volume_mounts(
    pod: Object, container: Container, directory: Path, contents: Contents, allocatable: Mapping[str, str]
) -> list[Mount]:
    """
    Make the volumes of *container* below *directory*, and return its mounts.

    Raises: ContainerError if a volume is of an unknown kind, or refers to a missing object.
    """
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", ())}
    mounts = []
    for mount in container.get("volumeMounts", ()):
        volume = volumes.get(mount["name"])
        if volume is None:
            raise ContainerError("CreateContainerConfigError", f'volume "{mount["name"]}" is not one of the Pod')
        source = _source(pod, volume, directory / ".volumes" / mount["name"], contents, allocatable)
        if mount.get("subPath"):
            source /= mount["subPath"]
            if not source.exists():
                source.mkdir(parents=True)
        mounts.append((mount["mountPath"].rstrip("/"), str(source), bool(mount.get("readOnly"))))
    return mounts


def _source(pod: Object, volume: Object, directory: Path, contents: Contents, allocatable: Mapping[str, str]) -> Path:
    if "hostPath" in volume:
        return _host_path(volume["hostPath"])
    directory.mkdir(parents=True, exist_ok=True)
    if "emptyDir" in volume:
        directory.chmod(0o777)
        return directory
    sources = volume["projected"]["sources"] if "projected" in volume else [volume]
    for source in sources:
        for name, value in _files(pod, source, contents, allocatable).items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(value)
    return directory


def _host_path(source: Object) -> Path:
    path = Path(source["path"])
    kind = source.get("type", "")
    if kind == "FileOrCreate" and not path.exists():
        path.touch()
    elif kind == "DirectoryOrCreate" and not path.exists():
        path.mkdir(parents=True)
    elif kind in {"File", "Directory", "Socket"} and not path.exists():
        raise ContainerError(
            "CreateContainerConfigError", f"hostPath type check failed: {path} is not a {kind.lower()}"
        )
    return path


def _files(pod: Object, source: Object, contents: Contents, allocatable: Mapping[str, str]) -> dict[str, bytes]:
    """Return the files of one configMap, secret or downwardAPI source, by relative path."""
    if "downwardAPI" in source:
        return {
            item["path"]: _downward(pod, item, allocatable).encode() for item in source["downwardAPI"].get("items", ())
        }
    for kind, plural in (("configMap", "configmaps"), ("secret", "secrets")):
        if kind in source:
            wanted = source[kind]
            found = whole_object(wanted, (plural, wanted.get("name") or wanted.get("secretName")), contents)
            if "items" in wanted:
                return {item["path"]: found[item["key"]] for item in wanted["items"] if item["key"] in found}
            return dict(found)
    known = "emptyDir, hostPath, configMap, secret, downwardAPI or projected"
    raise ContainerError("CreateContainerConfigError", f"volume source {sorted(source)} is none of {known}")


def _downward(pod: Object, item: Object, allocatable: Mapping[str, str]) -> str:
    if "fieldRef" in item:
        return field(pod, item["fieldRef"]["fieldPath"])
    of = item["resourceFieldRef"]
    return resource_field(containers_by_name(pod)[of["containerName"]], of, allocatable)
