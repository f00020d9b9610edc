"""
JSON Patch, applied strictly after RFC 6902, as far as this service writes it.
"""

import copy
from typing import Any


def applied(document: Any, patch: tuple[dict[str, Any], ...]) -> Any:
    """Return *document* with *patch* applied."""
    result = copy.deepcopy(document)
    for operation in patch:
        *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
        target = result
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]
        if isinstance(target, list):
            assert "add" == operation["op"]
            assert "-" == last
            target.append(operation["value"])
        else:
            assert (operation["op"] == "replace") == (last in target)
            target[last] = operation["value"]
    return result
