"""
Machines on which devices cannot be shared.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from hami_device_plugin.decide.probe.platform import unsupported_platform

PROGRAM = """
import sys
from pathlib import Path
from hami_device_plugin import main
main.ROOT = Path(sys.argv.pop(1))
sys.exit(main.main())
"""


@pytest.mark.parametrize(
    ("kernel_release", "soc_family", "expected"),
    [
        pytest.param("6.1.0-13-amd64", "", None, id="server"),
        pytest.param("6.8.0-1015-nvidia-64k", "jep106:036b", None, id="Grace"),
        pytest.param("5.15.167.4-microsoft-standard-WSL2", "", "WSL", id="WSL"),
        pytest.param("5.15.0-1064-azure", "", None, id="another kernel of Microsoft's"),
        pytest.param("5.15.148-tegra", "", "Tegra", id="Tegra by its kernel"),
        pytest.param("6.8.12", "Tegra\n", "Tegra", id="Tegra by its chip"),
    ],
)
def test_wsl_and_tegra_are_recognised(kernel_release: str, soc_family: str, expected: str | None) -> None:
    """By the names that their kernels report."""
    problem = unsupported_platform(kernel_release, soc_family)

    assert (expected is None) == (problem is None)
    assert (expected or "") in (problem or "")


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        pytest.param(
            "proc/sys/kernel/osrelease",
            "5.15.167.4-microsoft-standard-WSL2\n",
            "WSL shows all devices as one",
            id="WSL",
        ),
        pytest.param(
            "sys/devices/soc0/family", "Tegra\n", "a Tegra system has no device that can be shared", id="Tegra"
        ),
    ],
)
def test_plugin_refuses_such_a_machine_in_one_line(tmp_path: Path, file: str, content: str, problem: str) -> None:
    """Unless it is told that the devices have NVML."""
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(content)
    (tmp_path / "config.yaml").write_text("nvidia: {resourceCountName: nvidia.com/gpu}\n")
    arguments = [f"--config-file={tmp_path}/config.yaml", "--node-name=n1", "--kubeconfig=/nowhere"]

    def run(*more: str) -> str:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path), *arguments, *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert 1 == done.returncode
        [line] = done.stderr.splitlines()[-1:]
        return line

    assert f"hami-device-plugin: configuration: --device-discovery-strategy=auto: {problem}" in run()
    assert problem not in run("--device-discovery-strategy=nvml", "--metrics-bind-address=")
