"""
Which Pods the API server asks about, as far as that can be told from the conditions of the webhook's registration.

A Pod that names a resource of the device config and is not asked about keeps its scheduler and gets no share: nobody
notices but its author. Owns no writing: conditions are the chart's, or the administrator's.
Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-matchconditions
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

_QUOTED = re.compile(r"\"([^\"]*)\"|'([^']*)'")


def unasked(configuration: Mapping[str, Any], names: Collection[str]) -> tuple[str, ...]:
    """
    Return those of *names* that a webhook of *configuration* leaves out, though its conditions name others of them.

    Conditions that name none of *names* are of another kind, and nothing is said of them. An empty *configuration* is
    none: it leaves out all.

    >>> condition = {"name": "c", "expression": "object.spec.containers.exists(c, 'a' in c.resources.limits)"}
    >>> unasked({"webhooks": [{"matchConditions": [condition]}]}, ("a", "b"))
    ('b',)
    """
    missing: set[str] = set() if configuration else set(names)
    for webhook in configuration.get("webhooks") or ():
        conditions = webhook.get("matchConditions") or ()
        told = {text for each in conditions for pair in _QUOTED.findall(each["expression"]) for text in pair}
        if not told.isdisjoint(names):
            missing.update(set(names) - told)
    return tuple(sorted(missing))
