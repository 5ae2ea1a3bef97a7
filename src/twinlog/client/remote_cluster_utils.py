"""MM2's RemoteClusterUtils: each function opens and closes a client for one call."""

import re
from collections.abc import Mapping

from twinlog.client.mirror_client import MirrorClient, Offsets
from twinlog.model import ClusterAlias


async def replication_hops(properties: Mapping[str, str], upstream: ClusterAlias) -> int | None:
    """See `MirrorClient.replication_hops`."""
    async with MirrorClient(properties) as client:
        return await client.replication_hops(upstream)


async def heartbeat_topics(properties: Mapping[str, str]) -> frozenset[str]:
    """See `MirrorClient.heartbeat_topics`."""
    async with MirrorClient(properties) as client:
        return await client.heartbeat_topics()


async def checkpoint_topics(properties: Mapping[str, str]) -> frozenset[str]:
    """See `MirrorClient.checkpoint_topics`."""
    async with MirrorClient(properties) as client:
        return await client.checkpoint_topics()


async def upstream_clusters(properties: Mapping[str, str]) -> frozenset[ClusterAlias]:
    """See `MirrorClient.upstream_clusters`."""
    async with MirrorClient(properties) as client:
        return await client.upstream_clusters()


async def translate_offsets(
    properties: Mapping[str, str], remote: ClusterAlias, group: str, *, timeout_seconds: float
) -> Offsets:
    """See `MirrorClient.remote_consumer_offsets`; the arguments have the order of RemoteClusterUtils."""
    async with MirrorClient(properties) as client:
        return await client.remote_consumer_offsets(group, remote, timeout_seconds=timeout_seconds)


async def translate_offsets_matching(
    properties: Mapping[str, str],
    remote: ClusterAlias,
    pattern: str | re.Pattern[str],
    *,
    timeout_seconds: float,
) -> Mapping[str, Offsets]:
    """See `MirrorClient.remote_consumer_offsets_matching`."""
    async with MirrorClient(properties) as client:
        return await client.remote_consumer_offsets_matching(pattern, remote, timeout_seconds=timeout_seconds)
