"""
Decide what a container gets with its MIG instances: the instances themselves, as HAMi does.

The driver limits an instance, so there is no limit, no library and no directory for its usage.
Neighbours: `decide.allocation` is for shares.
"""

from collections.abc import Sequence

from hami_device_plugin.decide.allocation import (
    Grant,
    GrantPolicy,
    feature_environment,
    list_environment,
    volume_mounts,
)


def instance_grant(uuids: Sequence[str], policy: GrantPolicy) -> Grant:
    """Return what a container gets with the instances of *uuids*, of which there is at least one."""
    return Grant(
        env=feature_environment(policy) | list_environment(uuids, policy),
        mounts=volume_mounts(uuids, policy),
    )
