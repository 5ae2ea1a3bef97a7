"""Reads a principal's rights on groups and transactional ids, on both ends of a flow. Changes nothing."""

import asyncio
from collections.abc import Collection
from typing import Final

from twinlog.config import FlowConfig, Service
from twinlog.config.flow.filters import group_filter
from twinlog.errors import KafkaError
from twinlog.kafka.admin.inspector import ClusterInspector
from twinlog.kafka.ports import KafkaCluster
from twinlog.policy.names import lease_group, transactional_id_prefix
from twinlog.preflight.facts import GroupRights, Operations

_PROBE: Final = "preflight.of.twinlog"
"""A name that no group has and, behind the flow's prefix, no transactional id."""
_MOST: Final = 500
"""Most groups asked about: each costs a request of its own."""


async def group_rights(
    config: FlowConfig,
    source: KafkaCluster,
    source_rights: ClusterInspector,
    target_rights: ClusterInspector,
    on_source_cluster: Operations,
) -> GroupRights:
    """The principal's rights on the flow's groups. Never raises KafkaError: the answer holds it."""
    leases = [lease_group(str(service), config.flow) for service in Service]
    if not config.checkpoint.enabled:
        return GroupRights(elections=await _asked(target_rights, leases))
    taken = group_filter(config)
    try:
        listed = sorted(group for group in await source.list_groups() if taken.should_replicate_group(group))
    except KafkaError as error:
        return GroupRights(elections=await _asked(target_rights, leases), unlisted=error)
    names = listed[:_MOST]
    async with asyncio.TaskGroup() as tasks:
        here = tasks.create_task(_asked(source_rights, [*names, _PROBE]), name="rights on groups, source")
        there = tasks.create_task(_asked(target_rights, [*names, *leases]), name="rights on groups, target")
    on_source, on_target = here.result(), there.result()
    every = on_source.pop(_PROBE)
    lists_all = not isinstance(on_source_cluster, KafkaError) and "DESCRIBE" in on_source_cluster
    return GroupRights(
        elections={name: on_target.pop(name) for name in leases},
        on_source=on_source,
        on_target=on_target,
        sees_all=lists_all or not isinstance(every, KafkaError),
        not_asked=len(listed) - len(names),
    )


async def transaction_rights(config: FlowConfig, target_rights: ClusterInspector) -> bool | KafkaError:
    """Whether the flow may write with its transactional ids; True for a flow without any."""
    if not config.source.exactly_once:
        return True
    try:
        return await target_rights.may_write_transactions(f"{transactional_id_prefix(config.flow)}{_PROBE}")
    except KafkaError as error:
        return error


async def _asked(rights: ClusterInspector, names: Collection[str]) -> dict[str, Operations]:
    try:
        return dict(await rights.group_operations(names))
    except KafkaError as error:
        return dict.fromkeys(names, error)
