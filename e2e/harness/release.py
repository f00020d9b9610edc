"""
The release of the chart on a real cluster.

Owns what it was given last: to be given the same again costs nothing. Methods block.
"""

import json
from collections.abc import Mapping

from controlplane.cluster import ControlPlane
from harness.cluster import ROOT

Value = str | int
HAMI = "hami"
"""The release and its namespace."""
CHART = ROOT / "charts/hami"
VALUES: Mapping[str, Value] = {"image.registry": "localhost", "webhook.failurePolicy": "Fail"}
"""Fail: while the webhook is away, a Pod must not slip past it to the default scheduler."""
INSTALL = ("upgrade", "--install", "--wait", "--disable-openapi-validation")
"""How helm is told to make a release what it should be. The chart's own tests validate what it renders; here that would
be a third of helm's time."""
DEPLOY_SECONDS = 120


class Release:
    """The release `hami`."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._helm = control_plane.helm
        self._given: dict[str, Value] | None = None
        """None while nobody knows."""

    def deploy(self, values: Mapping[str, Value]) -> None:
        """Install it, or upgrade it to these *values* of the chart, and wait until all of it is ready."""
        given = {**VALUES, **values}
        if given == self._given:
            return
        self._given = None
        flags = [f"--set-json={name}={json.dumps(value)}" for name, value in given.items()]
        self._helm(
            *(*INSTALL, HAMI, str(CHART), "--namespace", HAMI, "--create-namespace"),
            *(f"--timeout={DEPLOY_SECONDS}s", *flags),
        )
        self._given = given

    def remove(self) -> None:
        """Uninstall it, and wait until it is gone."""
        self._given = None
        self._helm("uninstall", HAMI, f"--namespace={HAMI}", "--wait")
