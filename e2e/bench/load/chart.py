"""
The command lines of the scheduler's two containers and of the webhook, and DeviceClasses, from the rendered chart.

Every setting is the chart's, except addresses, files and credentials. Neighbours: `rig` starts the processes.
"""

import base64
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import yaml

from hamicommon.model import Object
from minicluster.quantity import parse

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts/hami"
NAMESPACE = "hami"


class Chart:
    """The chart with default values and some *values*, rendered for a cluster of Kubernetes *version*."""

    def __init__(self, helm: Path, version: str, values: Mapping[str, bool] | None = None) -> None:
        shown = ["scheduler/deployment.yaml", "scheduler/configmap.yaml", "device-config.yaml"]
        shown += ["webhook/deployment.yaml", "webhook/mutatingwebhookconfiguration.yaml"]
        values = values or {}
        shown += ["device-plugin/deviceclass.yaml"] if values.get("dra.enabled") else []
        command = [str(helm), "template", "hami", str(CHART), "--namespace", NAMESPACE, "--kube-version", version]
        command += ["--values", str(CHART / "ci/default-values.yaml")]
        command += [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
        command += [part for template in shown for part in ("--show-only", f"templates/{template}")]
        rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        objects = [found for found in yaml.safe_load_all(rendered) if found]
        [self._registration] = [found for found in objects if found["kind"] == "MutatingWebhookConfiguration"]
        self.device_classes: list[Object] = [found for found in objects if found["kind"] == "DeviceClass"]
        self.namespace = NAMESPACE
        self._data = {
            key: text for found in objects if found["kind"] == "ConfigMap" for key, text in found["data"].items()
        }
        self._containers = {
            container["name"]: container
            for found in objects
            if found["kind"] == "Deployment"
            for container in found["spec"]["template"]["spec"]["containers"]
        }

    @property
    def device_config(self) -> str:
        """The device config (YAML)."""
        return str(self._data["device-config.yaml"])

    def scheduler_arguments(self, **changed: str) -> list[str]:
        """Return the scheduler's arguments, with other values for the flags *changed* (`http_bind`)."""
        return self._arguments("scheduler", changed)

    def webhook_arguments(self, **changed: str) -> list[str]:
        """Return the webhook's arguments, like those of the scheduler, with a given certificate (`cert_file`)."""
        own_certificate = ("--tls-", "--webhook-configuration")
        return [flag for flag in self._arguments("webhook", changed) if not flag.startswith(own_certificate)]

    def webhook_registration(self, url: str, authority: bytes) -> Object:
        """Return the MutatingWebhookConfiguration, for a webhook at *url* with a certificate of *authority* (PEM)."""
        client = {"url": url, "caBundle": base64.b64encode(authority).decode()}
        return {
            **self._registration,
            "webhooks": [{**found, "clientConfig": client} for found in self._registration["webhooks"]],
        }

    def _arguments(self, container: str, changed: Mapping[str, str]) -> list[str]:
        flags = {argument.partition("=")[0]: argument for argument in self._containers[container]["args"]}
        names = {flag.lstrip("-").replace("-", "_"): flag for flag in flags}
        for name, value in changed.items():
            flag = names.get(name, f"--{name}")
            flags[flag] = f"{flag}={value}"
        return [*flags.values()]

    def cpu_millicores(self, container: str) -> int:
        """Return the CPU request of a *container* of the scheduler's Pod."""
        return int(parse(self._containers[container]["resources"]["requests"]["cpu"]) * 1000)

    def kube_scheduler_config(self, kubeconfig: Path, extender: str | None) -> Object:
        """Return kube-scheduler's configuration with the extender at URL *extender*, or without one."""
        config: Object = yaml.safe_load(self._data["config.yaml"])
        config["clientConnection"]["kubeconfig"] = str(kubeconfig)
        if extender is None:
            del config["extenders"]
        else:
            config["extenders"][0]["urlPrefix"] = extender
        return config
