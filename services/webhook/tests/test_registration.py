"""
Resources that the registration's conditions leave out.
"""

from typing import Any

import pytest

from hami_webhook.decide.registration import left_out

NAMES = frozenset({"nvidia.com/gpu", "nvidia.com/gpumem", "hygon.com/dcunum"})


def a_configuration(*webhooks: list[str] | None) -> dict[str, Any]:
    """Return a configuration with a webhook for each list of expressions."""
    return {
        "webhooks": [
            {} if texts is None else {"matchConditions": [{"name": "c", "expression": text} for text in texts]}
            for texts in webhooks
        ]
    }


@pytest.mark.parametrize(
    ("webhooks", "missing"),
    [
        ([None], ()),
        ([[]], ()),
        ([["object.metadata.namespace != 'kube-system'"]], ()),
        ([["""["hygon.com/dcunum","nvidia.com/gpu","nvidia.com/gpumem"].exists(n, n in c.resources.limits)"""]], ()),
        ([["'nvidia.com/gpu' in c || 'nvidia.com/gpumem' in c", "'hygon.com/dcunum' in c"]], ()),
        ([["""["nvidia.com/gpu"].exists(n, n in c)"""]], ("hygon.com/dcunum", "nvidia.com/gpumem")),
        ([["""["nvidia.com/gpu","nvidia.com/gpumem-percentage","hygon.com/dcunum"]"""]], ("nvidia.com/gpumem",)),
        ([None, ["'nvidia.com/gpu' in c"]], ("hygon.com/dcunum", "nvidia.com/gpumem")),
    ],
)
def test_resources_no_condition_names_are_left_out(webhooks: list[list[str] | None], missing: tuple[str, ...]) -> None:
    """A condition about something else leaves out nothing, and neither does no condition."""
    assert missing == left_out(a_configuration(*webhooks), NAMES)


def test_registration_that_is_not_there_leaves_out_all() -> None:
    """Without a registration the webhook is never called."""
    assert tuple(sorted(NAMES)) == left_out({}, NAMES)
