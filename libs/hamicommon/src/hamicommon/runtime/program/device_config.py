"""
The device config of a running service: read from its file at the start, and again when the file changes.

It has the texts in use: the device config's, and those of files beside it. It must never return a configuration with
errors: the previous one stays in use, and every error of the new one is logged.
Neighbours: `hamicommon.config.device_config` reads the text, each service applies a new configuration.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import structlog
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hamicommon.config.device_config import ConfigError, DeviceConfig, Texts, Unreadable, load_device_config

POLL_SECONDS = 5.0
_HASH_DIGITS = 12

logger = structlog.get_logger()


class Configuration(Protocol):
    """A configuration that was read from files."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Parts without effect that are probably mistakes."""

    @property
    def ignored(self) -> tuple[str, ...]:
        """Keys that only other programs read."""

    @property
    def old_forms(self) -> tuple[str, ...]:
        """Forms of older versions, which are read."""


T = TypeVar("T", bound=Configuration)


class ConfigFiles(Collector, Generic[T]):
    """The configuration in use, its files, and metrics of both."""

    def __init__(self, paths: tuple[str, ...], load: Callable[[Texts], T]) -> None:
        """
        Read the files at *paths*, the device config's first, by *load*.

        Raises:
            ConfigError: as *load* does.
        """
        self._paths = paths
        self._load = load
        self._seen = self._read()
        self._take(self._seen)
        self._is_refused = False

    @property
    def digest(self) -> str:
        """Return the first digits of the SHA-256 of the device config in use, as `sha256sum` prints it."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:_HASH_DIGITS]

    async def changes(self, poll_seconds: float = POLL_SECONDS) -> AsyncGenerator[T, None]:
        """Yield each new valid configuration in the files, until cancelled. An invalid one is logged once."""
        while True:
            await asyncio.sleep(poll_seconds)
            texts = await asyncio.to_thread(self._read)
            if texts != self._seen and self._judge(texts):
                yield self.config

    def reload(self) -> None:
        """Read the files now, changed or not. `changes` does not yield this configuration."""
        self._judge(self._read())

    def _read(self) -> Texts:
        """Return the content of every file; a subclass may have more files."""
        return read_texts(self._paths)

    def _judge(self, texts: Texts) -> bool:
        """Use *texts* if they are valid, and return whether they are."""
        files = [path for path in self._seen | texts if texts.get(path) != self._seen.get(path)]
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
        """The configuration in use."""
        self.text, self.loaded_at = str(texts[self._paths[0]]), time.time()
        """The text of the device config in use."""
        for warning in self.config.warnings:
            logger.warning("Part of the device config has no effect", file=self._paths[0], what=warning)
        for form in self.config.old_forms:
            logger.warning("An old form in the device config is read", file=self._paths[0], what=form)
        for key in self.config.ignored:
            logger.info("A key of the device config has no effect here", file=self._paths[0], key=key)

    def collect(self) -> Iterator[Metric]:
        """Yield the hash of the config in use, when it was read, and whether a newer one was rejected."""
        digest = GaugeMetricFamily("hami_device_config_info", "The device config in use, always 1.", labels=["hash"])
        digest.add_metric([self.digest], 1)
        yield digest
        yield GaugeMetricFamily(
            "hami_device_config_load_timestamp_seconds", "When the device config in use was read.", self.loaded_at
        )
        yield GaugeMetricFamily(
            "hami_device_config_refused",
            "1 while the file has errors, and the previous config stays in use.",
            float(self._is_refused),
        )


class DeviceConfigFile(ConfigFiles[DeviceConfig]):
    """The device config's file, without other files."""

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


def read_texts(paths: Iterable[str]) -> Texts:
    """Return the content of the files at *paths*, or why it cannot be read."""
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
