"""
The device config as a service lives by it: read from its file at the start, and again whenever the file changes.

Owns which texts are in force, the device config's and those of files beside it. Must never hand out a configuration
that has an error: the old one stays, and every error of the new one is told.
Neighbours: `hamicommon.config` says what the text means, each service what a new one changes.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import structlog
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hamicommon.config import ConfigError, DeviceConfig, Texts, Unreadable, load_device_config

POLL_SECONDS = 5.0
_HASH_DIGITS = 12

logger = structlog.get_logger()


class Configuration(Protocol):
    """What files mean."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What in them is odd."""

    @property
    def ignored(self) -> tuple[str, ...]:
        """What in them is for others."""

    @property
    def old_forms(self) -> tuple[str, ...]:
        """What in them is read and would be written otherwise today."""


T = TypeVar("T", bound=Configuration)


class ConfigFiles(Collector, Generic[T]):
    """Some files, the configuration in force, and how that came about, for people and for Prometheus."""

    def __init__(self, paths: tuple[str, ...], load: Callable[[Texts], T]) -> None:
        """
        Read the files at *paths*, the device config's first; *load* says what they mean.

        Raises:
            ConfigError: as *load* does.
        """
        self._paths = paths
        self._load = load
        self._seen = _texts(paths)
        self._take(self._seen)
        self._is_refused = False

    @property
    def digest(self) -> str:
        """Name the device config in force: the first digits of its SHA-256, as `sha256sum` prints it."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:_HASH_DIGITS]

    async def changes(self, poll_seconds: float = POLL_SECONDS) -> AsyncGenerator[T, None]:
        """Yield each new good configuration that the files come to hold, until cancelled; a bad one is logged once."""
        while True:
            await asyncio.sleep(poll_seconds)
            texts = await asyncio.to_thread(_texts, self._paths)
            if texts != self._seen and self._judge(texts):
                yield self.config

    def reload(self) -> None:
        """Read the files at once, whether or not they changed; `changes` does not speak of what is taken here."""
        self._judge(_texts(self._paths))

    def _judge(self, texts: Texts) -> bool:
        """Bring *texts* into force and return whether they are good."""
        files = [path for path in self._paths if texts[path] != self._seen[path]]
        self._seen = texts
        try:
            self._take(texts)
        except ConfigError as error:
            self._is_refused = True
            logger.error("New device config not used, the old one stays", files=files, problems=error.problems)
            return False
        self._is_refused = False
        logger.info("Device config changed", files=files, hash=self.digest)
        return True

    def _take(self, texts: Texts) -> None:
        self.config = self._load(texts)
        """What the texts in force mean."""
        self.text, self.loaded_at = str(texts[self._paths[0]]), time.time()
        """The device config in force, as it was written."""
        for warning in self.config.warnings:
            logger.warning("Part of the device config has no effect", file=self._paths[0], what=warning)
        for form in self.config.old_forms:
            logger.warning("An old form in the device config is read", file=self._paths[0], what=form)
        for key in self.config.ignored:
            logger.info("A key of the device config has no effect here", file=self._paths[0], key=key)

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


class DeviceConfigFile(ConfigFiles[DeviceConfig]):
    """The device config's file, with none beside it."""

    def __init__(self, path: str) -> None:
        """
        Read the file at *path*.

        Raises:
            ConfigError: it cannot be read, or values in it are wrong; each problem names the file.
        """
        super().__init__((path,), lambda texts: _device_config(path, texts[path]))


def _device_config(path: str, text: str | Unreadable) -> DeviceConfig:
    if isinstance(text, Unreadable):
        raise ConfigError((f"--device-config-file {path}: {text.reason}; it must be a device config, YAML",))
    try:
        return load_device_config(text)
    except ConfigError as error:
        raise error.in_file(path) from error


def _texts(paths: tuple[str, ...]) -> Texts:
    return {path: _text(path) for path in paths}


def _text(path: str) -> str | Unreadable:
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        return Unreadable(str(error.strerror), is_missing=True)
    except OSError as error:
        return Unreadable(error.strerror or str(error))
    except UnicodeDecodeError as error:
        return Unreadable(str(error))
