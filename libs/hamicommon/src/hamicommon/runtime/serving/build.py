"""
The build of a service, as HAMi's metric `hami_build_info`.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/metrics/metrics.go
"""

import os
import platform
import sys
from collections.abc import Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

_LABELS = ("version", "revision", "build_date", "go_version", "compiler", "platform")
_GO_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def build_family(version: str, environment: Mapping[str, str] = os.environ) -> Metric:
    """
    Return `hami_build_info`, whose value is always 1.

    The label `go_version` names the language run time. In an image, *environment* has the commit that was built and its
    time. Elsewhere both labels are empty.
    """
    family = GaugeMetricFamily("hami_build_info", "Which build this is", labels=_LABELS)
    machine = platform.machine()
    system = f"{sys.platform}/{_GO_MACHINES.get(machine, machine)}"
    compiler = platform.python_implementation().lower()
    built = (environment.get("HAMI_BUILD_REVISION", ""), environment.get("HAMI_BUILD_DATE", ""))
    family.add_metric((version, *built, f"python{platform.python_version()}", compiler, system), 1)
    return family
