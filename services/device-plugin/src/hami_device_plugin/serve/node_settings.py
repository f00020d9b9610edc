"""
Keep the settings of this Node: its files, and the named config that its label chooses.

Neighbours: `config` reads the texts, `plugin` hands over the Node and applies changes.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import structlog

from hami_device_plugin.config.loader import files, load, named_folder
from hami_device_plugin.config.settings import Config
from hamicommon.config.device_config import ConfigError, Texts
from hamicommon.runtime.program.device_config import ConfigFiles, read_texts

logger = structlog.get_logger()


class NodeSettings(ConfigFiles[Config]):
    """The settings in use. Until `select` is called no named config counts."""

    def __init__(self, arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
        """
        Read every file.

        Raises:
            ConfigError: with every problem found.
        """
        self.judge: Callable[[Config], Iterable[str]] = lambda _config: ()
        """Returns what the devices of this Node make impossible; they are not known at first."""
        self._label: str | None = None
        self._folder = named_folder(arguments, environ)

        def read(texts: Texts) -> Config:
            config = load(arguments, environ, texts, label=self._label)
            problems = tuple(self.judge(config))
            if problems:
                raise ConfigError(problems)
            return config

        super().__init__(files(arguments, environ), read)

    @property
    def follows_label(self) -> bool:
        """Whether a label of the Node chooses a config."""
        return bool(self._folder)

    def select(self, node: Mapping[str, Any]) -> bool:
        """
        Use the config that the label of *node* chooses, and return whether other settings are in use now.

        Once settings are in use, a label that chooses no valid config is logged, and they stay.

        Raises:
            ConfigError: the first label chooses no valid config.
        """
        labels = (node.get("metadata") or {}).get("labels") or {}
        label, before = labels.get(self.config.node_label, ""), self._label
        if not self.follows_label or label == before:
            return False
        self._label, config = label, self.config
        if before is not None:
            return self._judge(self._read()) and self.config != config
        try:
            self._take(self._read())
        except ConfigError:
            self._label = None
            raise
        return self.config != config

    def _read(self) -> Texts:
        texts = super()._read()
        if self._folder:
            # A ConfigMap's mount has folders and links that begin with two dots.
            paths = sorted(Path(self._folder).glob("[!.]*"))
            texts |= read_texts(str(path) for path in paths if path.is_file())
        return texts

    def _take(self, texts: Texts) -> None:
        super()._take(texts)
        if self.follows_label and self._label is not None:
            logger.info("The Node's label chose a config", label=self._label, config=self.config.named_config)
