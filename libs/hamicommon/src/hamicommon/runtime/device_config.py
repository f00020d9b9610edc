"""
The device config as a service reads it at its start: from a file, with what was ignored in it logged.

Neighbours: `hamicommon.config` says what the text means.
"""

from pathlib import Path

import structlog

from hamicommon.config import WHOLE_FILE, ConfigError, DeviceConfig, load_device_config

logger = structlog.get_logger()


def read_device_config(path: str) -> DeviceConfig:
    """
    Return the device config in the file at *path*.

    Raises:
        ConfigError: it cannot be read, or values in it are wrong; each problem names the file.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError((f"--device-config-file {path}: {reason}; it must be a device config, YAML",)) from error
    try:
        config = load_device_config(text)
    except ConfigError as error:
        raise ConfigError(tuple(f"{path}: {problem.removeprefix(WHOLE_FILE)}" for problem in error.problems)) from error
    for warning in config.warnings:
        logger.warning("Part of the device config has no effect", file=path, what=warning)
    return config
