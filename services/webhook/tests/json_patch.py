"""
Apply a JSON Patch strictly by RFC 6902: replacing or removing a missing value is an error.
"""

import copy
from collections.abc import Iterable
from typing import Any


def applied(document: Any, patch: Iterable[dict[str, Any]]) -> Any:
    """Return *document* with *patch* applied."""
    holder = {"": copy.deepcopy(document)}
    for operation in patch:
        *parents, last = ["", *(p.replace("~1", "/").replace("~0", "~") for p in operation["path"].split("/")[1:])]
        target: Any = holder
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]
        if isinstance(target, list) and operation["op"] == "add":
            target.insert(len(target) if last == "-" else int(last), operation["value"])
            continue
        place: Any = int(last) if isinstance(target, list) else last
        if operation["op"] != "add":
            target[place]
        if operation["op"] == "remove":
            del target[place]
        else:
            target[place] = operation["value"]
    return holder[""]
