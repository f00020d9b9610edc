"""
Where the vectors are, and how several texts travel in one input.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[3]
VECTORS: Final = ROOT / "libs/hamicommon/vectors"
SCHEDULER: Final = ROOT / "services/scheduler/tests/vectors"
WEBHOOK: Final = ROOT / "services/webhook/tests/vectors"
DEVICE_PLUGIN: Final = ROOT / "services/device-plugin/tests/vectors"
DEVICE_CONFIGS: Final = tuple(sorted((VECTORS / "device-config").glob("*.yaml")))


def cases(path: Path) -> Any:
    """Return what the file of vectors at *path* has."""
    return json.loads(path.read_text())


def some(path: Path, most: int = 20) -> Iterator[Any]:
    """Yield at most *most* of the cases at *path*, evenly spread."""
    found = cases(path)
    yield from found[:: max(1, len(found) // most)]


def text_of(data: bytes) -> str:
    """Return *data* as text; what is no UTF-8 becomes half surrogates, which a JSON text can have too."""
    return data.decode("utf-8", "surrogateescape")
