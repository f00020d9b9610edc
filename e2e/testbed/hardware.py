"""
The fake devices of a node.

Owns the form of the fake driver's `devices.csv`. Knows no cluster; both clusters are built from these values.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class FakeGpu:
    """One device of the fake driver."""

    uuid: str
    name: str
    memory_mib: int
    numa_node: int = 0


@dataclass(frozen=True)
class FakeNode:
    """A Node and its devices."""

    name: str
    gpus: tuple[FakeGpu, ...]

    @classmethod
    def of(cls, name: str, model: str, memory_mib: int, count: int) -> "FakeNode":
        """Return a Node with *count* devices of one model. The UUIDs are derived from *name*."""
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        return cls(
            name,
            tuple(FakeGpu(f"GPU-{digest}-0000-4000-8000-{index:012d}", model, memory_mib) for index in range(count)),
        )

    def write_hardware(self, folder: Path) -> None:
        """Write `devices.csv` into *folder*, which is `FAKE_DRIVER_DIR` for the fake driver and created if missing."""
        folder.mkdir(parents=True, exist_ok=True)
        rows = [
            f"{gpu.uuid},{gpu.name},{gpu.memory_mib},{gpu.numa_node},00000000:{index + 1:02X}:00.0"
            for index, gpu in enumerate(self.gpus)
        ]
        (folder / "devices.csv").write_text("\n".join(["uuid,name,memory_mib,numa_node,pci_bus_id", *rows, ""]))


TWO_NODES = (
    FakeNode.of("node-a", "NVIDIA A100-SXM4-40GB", 40960, 2),
    FakeNode.of("node-b", "Tesla T4", 16384, 2),
)
