"""The commands `explain` and `simulate`: what they read, print and return."""

import json
from pathlib import Path

import pytest

from hami_scheduler import cli
from hami_scheduler.cli import FITS, FITS_NOT, UNKNOWN

from ..support.builders import QUOTA, VECTORS, a_container, a_device, a_node, a_pod


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    """A file of kubectl's form, with the device config as the chart's ConfigMap has it."""
    pod = a_pod("waits", a_container(gpu=1, gpumem=99999)) | {"kind": "Pod"}
    config = (VECTORS / "device-config-default.yaml").read_text()
    settings_map = {"kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"device-config.yaml": config}}
    node = a_node("n1", a_device()) | {"kind": "Node"}
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": [node, pod, QUOTA, settings_map]}))
    return str(path)


def test_explain_reads_a_snapshot(snapshot: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In words and as JSON; a Pod that fits nowhere is exit code 1."""
    assert FITS_NOT == cli.main(["explain", "pod/waits", "--snapshot", snapshot])
    assert "default/waits fits nowhere" in capsys.readouterr().out
    assert FITS_NOT == cli.main(["explain", "waits", "--snapshot", snapshot, "-o", "json"])
    found = json.loads(capsys.readouterr().out)
    assert ("refused", "99999", "1/1 ResourceQuotaNotFit") == (
        found["verdict"],
        str(found["asks"][0]["memoryMib"]),
        found["nodes"][0]["code"],
    )


def test_simulate_reads_manifests_and_a_snapshot(
    snapshot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of every file, every Pod; the namespace counts where the manifest has none."""
    manifest = tmp_path / "pods.yaml"
    limits = "{nvidia.com/gpu: 1, nvidia.com/gpumem: 1000}"
    manifest.write_text(
        f"kind: Pod\nmetadata: {{name: a}}\nspec: {{containers: [{{name: c, resources: {{limits: {limits}}}}}]}}\n"
    )

    assert FITS == cli.main(["simulate", "-f", str(manifest), "-n", "other", "--snapshot", snapshot])
    assert "other/a fits node n1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param(["explain", "a/b", "--snapshot", "{}"], "'a/b' is not the name of a Pod", id="namespace and name"),
        pytest.param(["explain", "p", "--snapshot", "{}"], "Pod default/p is not in", id="no such Pod"),
        pytest.param(["explain", "p", "--snapshot", "/nowhere"], "/nowhere: No such file", id="no file"),
        pytest.param(["simulate", "-f", "/nowhere"], "/nowhere: No such file", id="no manifest"),
        pytest.param(["explain", "p", "--server", "http://127.0.0.1:9"], "no scheduler answers at", id="nobody there"),
        pytest.param(["explain", "p", "--server", "http://127.0.0.1:9"], "kubectl exec -n NAMESPACE ", id="where else"),
        pytest.param(
            ["explain", "waits", "--snapshot", "{}", "--gpu-scheduler-policy", "foo"],
            "--gpu-scheduler-policy: 'foo' is no device policy",
            id="misspelt policy",
        ),
        pytest.param(
            ["explain", "waits", "--snapshot", "{}", "--device-config-file", "/nowhere"], "/nowhere", id="no config"
        ),
    ],
)
def test_command_that_cannot_answer_says_why(
    snapshot: str, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On one line, with exit code 2."""
    assert UNKNOWN == cli.main([word.replace("{}", snapshot) for word in arguments])
    error = capsys.readouterr().err
    assert text in error
    assert 1 == error.count("\n")


def test_snapshot_without_a_device_config_says_where_one_may_come_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As kubectl writes lists; with the flag it is enough. A broken one is told with every error."""
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps({"kind": "NodeList", "items": [a_node("n1", a_device())]}))
    pods = tmp_path / "pods.yaml"
    pods.write_text(json.dumps({"kind": "PodList", "items": [a_pod("p")]}))
    both = ["explain", "p", "--snapshot", str(path), "--snapshot", str(pods)]
    config = tmp_path / "config.yaml"
    config.write_text("nvidia: {memoryFactor: x, overwriteEnv: 7}\n")

    assert UNKNOWN == cli.main(both)
    assert "--device-config-file" in capsys.readouterr().err
    assert FITS == cli.main([*both, "--device-config-file", str(VECTORS / "device-config-default.yaml")])
    assert UNKNOWN == cli.main([*both, "--device-config-file", str(config)])
    assert "overwriteEnv" in capsys.readouterr().err
    path.write_text("a: [")
    assert UNKNOWN == cli.main(both)
    assert "neither JSON nor YAML" in capsys.readouterr().err
    path.write_text("{}")
    assert UNKNOWN == cli.main(both)
