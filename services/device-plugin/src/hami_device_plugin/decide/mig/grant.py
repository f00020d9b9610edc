"""
Decide what a container gets with its MIG instances: the instances themselves, as HAMi does.

The driver limits an instance, so there is no limit, no library and no directory for its usage.
Neighbours: `allocate.allocation` is for shares.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hami_device_plugin.decide.allocate.allocation import (
    Grant,
    GrantPolicy,
    device_nodes,
    feature_environment,
    list_environment,
    volume_mounts,
)
from hami_device_plugin.decide.probe.strategy import ENVVAR, VOLUME_MOUNTS


@dataclass(frozen=True, slots=True)
class GrantedInstance:
    """One MIG instance that a container gets."""

    uuid: str
    index: str = ""
    """Its name by numbers, such as 0:1; empty unless the policy lists devices by index."""
    device_files: tuple[str, ...] = ()
    """Those that reach it; empty unless the policy passes device files."""


def needs_address(policy: GrantPolicy) -> bool:
    """Return whether a grant by *policy* has more of an instance than its UUID."""
    is_listed = ENVVAR in policy.list_strategies or VOLUME_MOUNTS in policy.list_strategies
    return (policy.indices is not None and is_listed) or policy.minors is not None


def instance_grant(instances: Sequence[GrantedInstance], policy: GrantPolicy) -> Grant:
    """Return what a container gets with *instances*, of which there is at least one."""
    names = [found.uuid if policy.indices is None else found.index for found in instances]
    return Grant(
        env=feature_environment(policy) | list_environment(names, policy),
        mounts=volume_mounts(names, policy),
        device_nodes=device_nodes([path for found in instances for path in found.device_files], policy),
    )
