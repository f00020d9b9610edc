"""
The record of a grant on disk, as JSON: what Unprepare and the next process must know when the claim is gone.
"""

from typing import Any

import orjson

from hami_device_plugin.decide.dra.grant import ClaimGrant, GrantedResult
from hamicommon.errors import HamiError
from hamicommon.model import Share

VERSION = 1


class RecordError(HamiError):
    """A record is not of the form that this plugin writes."""


def encode_record(grant: ClaimGrant) -> bytes:
    """Return the contents of the record of *grant*."""
    results = [
        {
            "request": result.request,
            "pool": result.pool,
            "device": result.device,
            "shareID": result.share_id,
            "uuid": result.share.uuid,
            "memoryMiB": result.share.memory_mib,
            "corePercent": result.share.core_percent,
            "replicas": result.replicas,
        }
        for result in grant.results
    ]
    found = {"version": VERSION, "namespace": grant.namespace, "name": grant.name, "uid": grant.uid, "results": results}
    return orjson.dumps(found, option=orjson.OPT_INDENT_2)


def decode_record(content: bytes) -> ClaimGrant:
    """
    Return the grant in *content*.

    Raises:
        RecordError: it has another form.
    """
    try:
        root = orjson.loads(content)
        if root["version"] != VERSION:
            raise RecordError(f"version is {root['version']!r}, not {VERSION}")
        results = tuple(_result(one) for one in root["results"])
        return ClaimGrant(str(root["namespace"]), str(root["name"]), str(root["uid"]), results)
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{type(error).__name__}: {error}") from error


def _result(item: Any) -> GrantedResult:
    share = Share(str(item["uuid"]), "", int(item["memoryMiB"]), int(item["corePercent"]))
    names = (str(item["request"]), str(item["pool"]), str(item["device"]), str(item["shareID"]))
    return GrantedResult(*names, share, int(item["replicas"]))
