"""
Read the configuration file of MPS v3, which `-a` applies once when the daemon starts.

Source: https://docs.nvidia.com/deploy/mps/mpsv3-configuration-file.html
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fake_driver.mps.model import DEFAULT, Limits, MpsError, ServerSettings, checked_name, devices

_LIMITS = {
    "active_thread_percentage": "active-thread-percentage",
    "pinned_memory_limit": "pinned-memory-limit",
    "client_priority": "client-priority",
}
_SERVER = {"allowed_devices", "uid", "locality_domains", "namespaces", *_LIMITS}
_FEATURES = {"memacct": {"enabled", "audit_log"}, "context-share": {"enabled", "default_socket"}}


@dataclass(frozen=True)
class Configured:
    """A server of the file, with the limits of its namespaces by name. That named `default` is always there."""

    settings: ServerSettings
    namespaces: Mapping[str, Limits]


def parse(text: str, uid: int) -> tuple[Configured, ...]:
    """
    Return the servers of a file. One without `uid` belongs to *uid*. Features have no effect.

    Raises:
        MpsError: the file is not valid. The message names the key.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MpsError(f"Invalid configuration: {error}") from error
    _check_keys(document, {"schema_version", "servers", "features"}, "")
    for name, feature in _tables(document, "features", ""):
        if name not in _FEATURES:
            raise MpsError(f"Unknown key 'features.{name}' in the configuration.")
        _check_keys(feature, _FEATURES[name], f"features.{name}.")
    return tuple(_server(name, server, uid) for name, server in _tables(document, "servers", ""))


def _server(name: str, server: Mapping[str, Any], uid: int) -> Configured:
    place = f"servers.{name}."
    _check_keys(server, _SERVER, place)
    if type(server.get("locality_domains", False)) is not bool or type(server.get("uid", uid)) is not int:
        raise MpsError(f"Invalid value: '{place}locality_domains' is a boolean, and '{place}uid' a number.")
    namespaces = {DEFAULT: _limits(server)}
    for namespace, table in _tables(server, "namespaces", place):
        _check_keys(table, set(_LIMITS), f"{place}namespaces.{namespace}.")
        namespaces[checked_name(namespace, "namespace")] = _limits(table)
    allowed = devices(str(server.get("allowed_devices", "")))
    return Configured(ServerSettings(checked_name(name, "server"), server.get("uid", uid), allowed), namespaces)


def _limits(table: Mapping[str, Any]) -> Limits:
    return Limits().changed({option: str(table[key]) for key, option in _LIMITS.items() if key in table})


def _tables(table: Mapping[str, Any], key: str, place: str) -> list[tuple[str, Mapping[str, Any]]]:
    found = table.get(key, {})
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise MpsError(f"Invalid value: '{place}{key}' has a table for each name.")
    return list(found.items())


def _check_keys(table: Mapping[str, Any], known: set[str], place: str) -> None:
    for key in table:
        if key not in known:
            raise MpsError(f"Unknown key '{place}{key}' in the configuration.")
