"""
The device config as a service lives by it: read from a file at its start, and again whenever the file changes.

Owns which text is in force. Must never hand out a config that has an error: the old one stays, and every error of the
new one is told. Neighbours: `hamicommon.config` says what the text means, each service what a new one changes.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hamicommon.config import WHOLE_FILE, ConfigError, DeviceConfig, load_device_config

POLL_SECONDS = 5.0
_HASH_DIGITS = 12

logger = structlog.get_logger()


class DeviceConfigFile(Collector):
    """One file, the config in force, and how that came about, for people and for Prometheus."""

    def __init__(self, path: str) -> None:
        """
        Read the file at *path*.

        Raises:
            ConfigError: it cannot be read, or values in it are wrong; each problem names the file.
        """
        self._path = path
        self._seen = _content(path)
        self.text = ""
        """What is in force, as it was written."""
        self._take(self._seen)
        self._is_refused = False

    @property
    def digest(self) -> str:
        """Name the text in force: the first digits of its SHA-256, as `sha256sum` prints it."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:_HASH_DIGITS]

    async def changes(self, poll_seconds: float = POLL_SECONDS) -> AsyncIterator[DeviceConfig]:
        """Yield each new good config that the file comes to hold, until cancelled; a bad one is logged once."""
        while True:
            await asyncio.sleep(poll_seconds)
            content = await asyncio.to_thread(_content, self._path)
            if content == self._seen:
                continue
            self._seen = content
            try:
                self._take(content)
            except ConfigError as error:
                self._is_refused = True
                logger.error("New device config not used, the old one stays", file=self._path, problems=error.problems)
                continue
            self._is_refused = False
            logger.info("Device config changed", file=self._path, hash=self.digest)
            yield self.config

    def _take(self, content: "str | _Unreadable") -> None:
        config = _load(self._path, content)
        self.config = config
        """What the text in force means."""
        self.text, self.loaded_at = str(content), time.time()
        for warning in config.warnings:
            logger.warning("Part of the device config has no effect", file=self._path, what=warning)
        for key in config.ignored:
            logger.info("A key of the device config has no effect here", file=self._path, key=key)

    def collect(self) -> Iterator[Metric]:
        """Yield which config is in force, since when, and whether a newer one was refused."""
        digest = GaugeMetricFamily("hami_device_config_info", "The device config in force, always 1.", labels=["hash"])
        digest.add_metric([self.digest], 1)
        yield digest
        yield GaugeMetricFamily(
            "hami_device_config_load_timestamp_seconds", "When the device config in force was read.", self.loaded_at
        )
        yield GaugeMetricFamily(
            "hami_device_config_refused", "1 while the file holds one that has errors.", float(self._is_refused)
        )


def read_device_config(path: str) -> DeviceConfig:
    """
    Return the device config in the file at *path*, once.

    Raises:
        ConfigError: it cannot be read, or values in it are wrong; each problem names the file.
    """
    return DeviceConfigFile(path).config


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """Why a file has no text."""

    reason: str


def _content(path: str) -> str | _Unreadable:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return _Unreadable(getattr(error, "strerror", None) or str(error))


def _load(path: str, content: str | _Unreadable) -> DeviceConfig:
    if isinstance(content, _Unreadable):
        raise ConfigError((f"--device-config-file {path}: {content.reason}; it must be a device config, YAML",))
    try:
        return load_device_config(content)
    except ConfigError as error:
        raise ConfigError(tuple(f"{path}: {problem.removeprefix(WHOLE_FILE)}" for problem in error.problems)) from error
