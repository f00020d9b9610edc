"""
The device config as a file on a service's disk.
"""

import asyncio
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from hamicommon.config.device_config import ConfigError
from hamicommon.runtime.program.device_config import DeviceConfigFile
from hamicommon.vendors import ascend, nvidia


def test_missing_file_is_named_with_its_flag(tmp_path: Path) -> None:
    """The operator knows the flag, not the code."""
    path = tmp_path / "absent.yaml"

    with pytest.raises(ConfigError) as raised:
        DeviceConfigFile(str(path))

    expected = f"--device-config-file {path}: No such file or directory; it must be a device config, YAML"
    assert (expected,) == raised.value.problems


def test_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """Bytes of another kind are a problem of the file, not a bug."""
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ConfigError, match=r"binary\.yaml: 'utf-8' codec can't decode"):
        DeviceConfigFile(str(path))


def test_each_problem_names_the_file(tmp_path: Path) -> None:
    """A process may read several."""
    path = tmp_path / "wrong.yaml"
    path.write_text("nvidia: {memoryFactor: x, overwriteEnv: 7}\n")

    with pytest.raises(ConfigError) as raised:
        DeviceConfigFile(str(path))

    assert 2 == len(raised.value.problems)
    assert all(problem.startswith(f"{path}: nvidia.") for problem in raised.value.problems)


def test_what_has_no_effect_is_logged(tmp_path: Path) -> None:
    """A misspelt key is reported."""
    path = tmp_path / "odd.yaml"
    section = "enflame: {resourceNameVGCUPercentage: enflame.com/vgcu-percentage}"
    path.write_text(f"nvidia: {{resourceCountName: nvidia.com/gpu, resorceCountName: x}}\n{section}\n")

    with capture_logs() as lines:
        config = DeviceConfigFile(str(path)).config

    assert "nvidia.com/gpu" == config[nvidia.SECTION].resource_count_name
    assert ["nvidia.resorceCountName: line 1: unknown key, ignored"] == [
        line["what"] for line in lines if "what" in line
    ]
    assert ["enflame.resourceNameVGCUPercentage"] == [line["key"].partition(":")[0] for line in lines if "key" in line]


def test_old_form_that_is_read_is_not_said_to_have_no_effect(tmp_path: Path) -> None:
    """A reader of that warning would remove the chips."""
    path = tmp_path / "old.yaml"
    path.write_text("vnpus: [{commonWord: Ascend910A, resourceName: huawei.com/Ascend910A}]\n")

    with capture_logs() as lines:
        config = DeviceConfigFile(str(path)).config

    assert "huawei.com/Ascend910A" == config[ascend.SECTION].chips[0].resource_count_name
    assert [("An old form in the device config is read", "vnpus: a list until v2.8; read as vnpus.configs")] == [
        (line["event"], line["what"]) for line in lines if line["log_level"] == "warning"
    ]


GOOD = "nvidia: {resourceCountName: nvidia.com/gpu, memoryFactor: %d}\n"


async def test_changed_file_is_taken_over_and_a_bad_one_refused_once(tmp_path: Path) -> None:
    """Every error is logged, the old config stays in use, and the next valid one is returned."""
    path = tmp_path / "config.yaml"
    path.write_text(GOOD % 1)
    file, registry = DeviceConfigFile(str(path)), CollectorRegistry()
    registry.register(file)
    first = file.digest

    def said(name: str) -> float | None:
        return registry.get_sample_value(f"hami_device_config_{name}")

    changes = file.changes(0.001)
    with capture_logs() as lines:
        coming = asyncio.ensure_future(anext(changes))
        path.write_text("nvidia: {memoryFactor: x, overwriteEnv: 7}\n")
        while not said("refused"):  # noqa: ASYNC110 - a file is looked at in a loop
            await asyncio.sleep(0.001)
        path.unlink()
        await asyncio.sleep(0.05)
        assert (1, first) == (file.config[nvidia.SECTION].memory_factor, file.digest)
        written = tmp_path / "written"
        written.write_text(GOOD % 2)
        written.rename(path)
        taken = await asyncio.wait_for(coming, 5)

    assert (2, 0.0) == (taken[nvidia.SECTION].memory_factor, said("refused"))
    assert 1.0 == registry.get_sample_value("hami_device_config_info", {"hash": file.digest})
    assert first != file.digest
    refused = [line["problems"] for line in lines if line["log_level"] == "error"]
    assert [2, 1] == [len(problems) for problems in refused][:2]
    assert len(refused) <= 3
    await changes.aclose()
