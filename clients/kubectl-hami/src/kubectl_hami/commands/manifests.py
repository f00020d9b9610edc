"""
Read manifests from files and standard input.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hamicommon.manifests import documents, pods_of, with_namespace
from kubectl_hami.commands.frame import UsageError


def pods_in(files: Sequence[str], namespace: str) -> list[dict[str, Any]]:
    """
    Return the Pods that *files* would create, in *namespace* where they name none.

    Raises:
        UsageError: a file cannot be read, or none of them creates a Pod.
        ManifestError: a file is no manifest.
    """
    found = []
    for file in files:
        name = "standard input" if file == "-" else file
        found += pods_of(documents(_text(file, name), name), name)
    if not found:
        raise UsageError(f"{', '.join(files)}: holds no Pod and no object that creates Pods")
    return [with_namespace(pod, namespace) for pod in found]


def _text(file: str, name: str) -> str:
    try:
        return (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}: byte {error.start} is not UTF-8") from error
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}") from error
