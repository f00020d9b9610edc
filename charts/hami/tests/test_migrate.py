"""
docs/migrate.md's installation takes the values file of an existing HAMi as it is.
"""

from pathlib import Path

import pytest
import yaml

from harness.documents.commands import Document

from .chart import CHART, HAMI_VALUES, Json, needs_helm, rendering

pytestmark = needs_helm

ROOT = CHART.parents[1]
FILES: dict[str, Json] = {
    **{f"all defaults of {version}": values for version, values in HAMI_VALUES.items()},
    "a mirror": {"global": {"imageRegistry": "mirror.example"}},
    "a mirror of kube-scheduler": {
        "global": {"imageRegistry": "mirror.example"},
        "scheduler": {"kubeScheduler": {"image": {"registry": "mirror.example", "repository": "k8s/kube-scheduler"}}},
    },
    "nothing": {},
}
"""What `helm get values` may have saved."""


@pytest.mark.parametrize("values", FILES.values(), ids=FILES)
def test_first_installation_accepts_the_saved_values(values: Json, tmp_path: Path) -> None:
    """The command as it is on the page, with another registry than the file's. Nothing is on yet."""
    saved = tmp_path / "saved.yaml"
    saved.write_text(yaml.safe_dump(values))
    environment = {"PATH": rendering(tmp_path), "HAMI_VALUES": str(saved), "REGISTRY": "registry.example"}

    output = Document(ROOT / "docs/migrate.md").run("begin", environment, folder=ROOT)

    assert {"Deployment", "DaemonSet"}.isdisjoint(each["kind"] for each in yaml.safe_load_all(output) if each)
