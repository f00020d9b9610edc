"""
Decide which managed resources the webhook's registration leaves out.

The API server asks the webhook only about Pods that match the registration's conditions. A Pod with a resource that the
conditions leave out keeps its scheduler and gets no share. The chart or the administrator writes the conditions.
Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-matchconditions
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

_QUOTED = re.compile(r"\"([^\"]*)\"|'([^']*)'")


def left_out(configuration: Mapping[str, Any], names: Collection[str]) -> tuple[str, ...]:
    """
    Return those of *names* that a webhook of *configuration* leaves out while its conditions name others of them.

    Conditions that contain none of *names* are about something else and count for nothing. An empty *configuration*
    stands for a missing one, which leaves out all.

    >>> condition = {"name": "c", "expression": "object.spec.containers.exists(c, 'a' in c.resources.limits)"}
    >>> left_out({"webhooks": [{"matchConditions": [condition]}]}, ("a", "b"))
    ('b',)
    """
    missing: set[str] = set() if configuration else set(names)
    for webhook in configuration.get("webhooks") or ():
        conditions = webhook.get("matchConditions") or ()
        quoted = {text for each in conditions for pair in _QUOTED.findall(each["expression"]) for text in pair}
        if not quoted.isdisjoint(names):
            missing.update(set(names) - quoted)
    return tuple(sorted(missing))
