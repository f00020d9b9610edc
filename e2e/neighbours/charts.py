"""
A neighbour on a real cluster: its own chart, with an image that is packed from its programs.

Owns the image and the release. The values are those of `examples/neighbours`. Methods block.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from controlplane.cluster import ControlPlane
from controlplane.images import oci
from controlplane.programs import build
from harness.cluster import ROOT
from neighbours.programs import module_folder

EXAMPLES = ROOT / "examples/neighbours"
READY_SECONDS = 180


@dataclass(frozen=True)
class Charted:
    """A program with its chart."""

    name: str
    """Of the release, and of its folder in `examples/neighbours`."""
    product: build.Product
    program: str
    """Its path in the image, as the chart calls it."""
    module: str
    """`path@version` of the module with the chart."""
    chart: str
    """The chart's folder in the module."""
    namespace: str
    values: Mapping[str, str]
    """Values of the chart for this cluster. `{image}` and `{tag}` are those of the packed image."""

    def install(self, cluster: ControlPlane, values: str | None = "values.yaml") -> None:
        """Install it with a file of the example's *values* or with the chart's own, and wait until it is ready."""
        built = build.made(self.product, print)
        [file] = list(built.iterdir())
        image, tag = f"localhost/{self.name}", self.module.rpartition("@")[2]
        archive = build.cache() / f"{built.name}.tar"
        cluster.load_image(oci.packed(archive, f"{image}:{tag}", {self.program: file}, [self.program]))
        told = {name: value.format(image=image, tag=tag) for name, value in self.values.items()}
        cluster.helm(
            *("upgrade", "--install", self.name, str(module_folder(self.module) / self.chart)),
            *(f"--namespace={self.namespace}", "--create-namespace", "--wait", f"--timeout={READY_SECONDS}s"),
            *([f"--values={EXAMPLES / self.name / values}"] if values else []),
            *(f"--set={name}={value}" for name, value in told.items()),
        )

    def remove(self, cluster: ControlPlane) -> None:
        """Uninstall it, and wait until it is gone."""
        cluster.helm("uninstall", self.name, f"--namespace={self.namespace}", "--wait", "--ignore-not-found")


def example(neighbour: str, file: str) -> Path:
    """Return the path of a manifest."""
    return EXAMPLES / neighbour / file
