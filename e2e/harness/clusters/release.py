"""
The release of the chart on a real cluster.

Owns the last values, so that deploying the same values again costs nothing. Methods block.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from controlplane.cluster import ControlPlane
from harness.cluster import ROOT

Value = str | int | list[Any] | dict[str, Any]
HAMI = "hami"
"""The name of the release and of its namespace."""
CHART = ROOT / "charts/hami"
HOME_LABEL = {"e2e/home": "on"}
"""On the Nodes that stay as long as the cluster. Webhook and scheduler run there, cordoned or not."""
VALUES: Mapping[str, Value] = {
    "image.registry": "localhost",
    "scheduler.nodeSelector": HOME_LABEL,
    "scheduler.tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}],
    "webhook.failurePolicy": "Fail",
}
"""
The webhook goes where the scheduler goes. With a Node that a test removes they would end, and the Lease would run out.

Fail, because a Pod must not reach the default scheduler while the webhook does not run.
"""
INSTALL = ("upgrade", "--install", "--wait", "--disable-openapi-validation")
"""The arguments of helm. The tests of the chart validate what it renders; here that would take a third of the time."""
DEPLOY_SECONDS = 120


class Release:
    """The release `hami`."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._helm = control_plane.helm
        self._given: tuple[Path, dict[str, Value]] | None = None
        """The chart and its values. None if unknown."""

    def deploy(self, values: Mapping[str, Value], chart: Path = CHART) -> None:
        """Install the release, or upgrade it to *chart* with *values*, and wait until it is ready."""
        given = {**VALUES, **values}
        if self._given == (chart, given):
            return
        self._given = None
        flags = [f"--set-json={name}={json.dumps(value)}" for name, value in given.items()]
        self._helm(
            *(*INSTALL, HAMI, str(chart), "--namespace", HAMI, "--create-namespace"),
            *(f"--timeout={DEPLOY_SECONDS}s", *flags),
        )
        self._given = (chart, given)

    def changed(self) -> None:
        """Say that somebody else has changed the release."""
        self._given = None

    def remove(self) -> None:
        """Uninstall the release, and wait until it is gone."""
        self._given = None
        self._helm("uninstall", HAMI, f"--namespace={HAMI}", "--wait")
