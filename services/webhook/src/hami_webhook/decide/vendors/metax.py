"""
MetaX: class and quality of service of Pods with shared devices.

Source: https://github.com/Project-HAMi/HAMi/tree/v2.10.0/pkg/device/metax (MutateAdmission)
"""

from functools import partial

from hami_webhook.decide.amounts import AmountError, Bound, whole
from hami_webhook.decide.pod import Container, Pod
from hami_webhook.decide.rules import Rules, counted
from hamicommon.vendors import metax
from hamicommon.vendors.amounts import TEXT_SHOWN
from hamicommon.vendors.description import Vendor, named
from hamicommon.wire.quantity import INT32_MAX

CLASSES = ("online", "offline")
QOS_POLICIES = ("best-effort", "fixed-share", "burst-share")

_MIB_OF_GIB = 1024


def rules(vendor: Vendor) -> Rules:
    """Return the rules of shared devices; whole devices are counted."""
    if vendor.key == metax.GPU_KEY:
        return counted(vendor)
    config: metax.MetaxConfig = vendor.config
    return Rules(
        vendor,
        asks=named(config.resource_vcount_name),
        bounds=(Bound(config.resource_vcount_name), Bound(config.resource_vcore_name, 100)),
        complete=partial(_complete, config=config),
    )


def _complete(container: Container, pod: Pod, config: metax.MetaxConfig) -> bool:
    """Check the Pod's class and quality of service, and set the latter unless the Pod is online."""
    if config.resource_vcount_name not in container.limits:
        return False
    _check_memory(container, config.resource_vmemory_name)
    found = pod.annotations.get(metax.CLASS_KEY)
    if found is not None:
        if found not in CLASSES:
            raise AmountError(f"{metax.CLASS_KEY} must be set one of [{', '.join(CLASSES)}]: {found[:40]!r} is neither")
        count = whole(container, config.resource_vcount_name)
        if count != 1:
            raise AmountError(
                f"app-class pod must request single device: container {container.name} asks for {count}; write"
                f" {config.resource_vcount_name}: 1, or remove the annotation {metax.CLASS_KEY}"
            )
    if found != "online" and (policy := pod.annotations.get(metax.QOS_KEY)) not in QOS_POLICIES:
        if policy is not None:
            raise AmountError(
                f"{metax.QOS_KEY} must be set one of [{', '.join(QOS_POLICIES)}]: {policy[:40]!r} is none"
            )
        pod.set_annotation(metax.QOS_KEY, QOS_POLICIES[0])
    return True


def _check_memory(container: Container, name: str) -> None:
    """Check that the memory is a number of GiB, or an amount with a unit, of 0 or at least 1 MiB."""
    Bound(name, INT32_MAX * 2**20).check(container)
    amount = whole(container, name) if name in container.limits else None
    if not amount:
        return
    text = str(container.limits[name])
    mib = metax.memory_mib(text)
    if not 0 < mib <= INT32_MAX:
        raise AmountError(
            f"invalid {name} value {text[:TEXT_SHOWN]} in container {container.name}: means {mib} MiB; write a number "
            f"of GiB up to {INT32_MAX // _MIB_OF_GIB}, or an amount with its unit, such as 512Mi"
        )
