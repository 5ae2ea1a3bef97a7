"""What goes wrong for services that are watched: each makes a trouble, and mends it again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from integration.observability.prometheus_rig import TEST_RPO_SECONDS, Prometheus, holds
from integration.observability.watched_rig import (
    BEAT_SECONDS,
    BUSY,
    CHANGED,
    DREAMERS,
    LARGE,
    LATE,
    LOST,
    OWNER_TIMEOUT_SECONDS,
    READERS,
    RECORDS_AT_ONCE,
    SMALL,
    VISITED,
    A,
    B,
    WatchedRig,
)
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.kafka.ports import Member, NewTopic, Pulse
from twinlog.model import Flow, TopicPartition
from twinlog.policy.internal_topics import election_group
from twinlog.testing.brokers import eventually, make_topics, retry_admin

QUOTA_BYTES_PER_SECOND = 1_000.0
"""Somebody writes more."""
BATCH_BYTES = 100_000
BACKLOG_BYTES = 40 * BATCH_BYTES
OWNERS = f'twinlog_flow_owner_changes_total{{twinlog_service="heartbeat", twinlog_source_cluster="{A}"}}'


@asynccontextmanager
async def copier_stopped(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    """Not ended: its sockets stay open, and it answers nobody."""
    process = of.process("source")
    process.suspend()
    try:
        yield
    finally:
        process.resume()


@asynccontextmanager
async def heartbeat_stopped(of: WatchedRig, scraper: Prometheus) -> AsyncIterator[None]:
    """What the others tell is still told."""
    process = of.process("heartbeat")
    process.suspend()
    try:
        await eventually(lambda: holds(scraper, 'absent(twinlog_heartbeat_path{twinlog_state="ALIVE"})'))
        for metric in ("replication_partitions", "checkpoint_groups", "configsync_age_seconds"):
            assert await scraper.query(f"twinlog_{metric}"), metric
        yield
    finally:
        process.resume()


@asynccontextmanager
async def heartbeat_and_copier_stopped(of: WatchedRig, scraper: Prometheus) -> AsyncIterator[None]:
    async with heartbeat_stopped(of, scraper), copier_stopped(of, scraper):
        yield


@asynccontextmanager
async def link_cut(of: WatchedRig, scraper: Prometheus) -> AsyncIterator[None]:
    of.link.cut()
    try:
        late = f"max(twinlog_heartbeat_age_seconds) > {2 * BEAT_SECONDS}"
        await eventually(lambda: holds(scraper, late))
        yield
    finally:
        of.link.mend()
    await eventually(lambda: holds(scraper, 'twinlog_heartbeat_path{twinlog_state="ALIVE"} == 1'))


@asynccontextmanager
async def flow_paused(of: WatchedRig, scraper: Prometheus) -> AsyncIterator[None]:
    await of.pause()
    try:
        await eventually(lambda: holds(scraper, 'twinlog_heartbeat_path{twinlog_state="SILENT"} == 1'))
        yield
    finally:
        await of.resume()


@asynccontextmanager
async def topic_limited_to_nothing(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    await of.limit(BUSY, 1)
    try:
        yield
    finally:
        await of.limit(BUSY, 0)


@asynccontextmanager
async def topic_limited_below_its_backlog(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    """The copy moves all the time, and needs longer than the recovery point allows."""
    await of.limit(LARGE, BACKLOG_BYTES // (4 * TEST_RPO_SECONDS))
    await of.write_batches(LARGE, BACKLOG_BYTES // BATCH_BYTES, BATCH_BYTES)
    try:
        yield
    finally:
        await of.limit(LARGE, 0)


@asynccontextmanager
async def owner_changes_again_and_again(of: WatchedRig, scraper: Prometheus) -> AsyncIterator[None]:
    """Somebody is in the group of the heartbeat service's owners in earlier releases, and leaves it."""
    for _ in range(2):
        rival = of.target.member(
            election_group("heartbeat", Flow(A, B)),
            assign=lambda said, _: said,
            session_seconds=OWNER_TIMEOUT_SECONDS,
            rebalance_seconds=OWNER_TIMEOUT_SECONDS,
        )
        owners = await scraper.value(OWNERS)

        async def service_hears_of_the_rival(rival: Member = rival, owners: float = owners) -> bool:
            if await rival.beat() is not Pulse.SEATED:
                await rival.join(lambda _: b"rival")
            return await scraper.value(OWNERS) > owners

        async def service_is_the_owner_again(owners: float = owners) -> bool:
            return await scraper.value(OWNERS) > owners + 1

        try:
            await eventually(service_hears_of_the_rival)
        finally:
            await rival.withdraw()
        await eventually(service_is_the_owner_again)
    yield


@asynccontextmanager
async def target_refuses_a_topic(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    """Kafka takes no topic whose name is as that of another one but for dots and underscores."""
    other = f"{A}.{LATE}".replace(".", "_")
    for cluster, topic in ((of.target, other), (of.source, LATE)):
        await make_topics(cluster, NewTopic(name=topic, partition_count=1, replication_factor=1))
    try:
        yield
    finally:
        await retry_admin(lambda: of.target.delete_topics([other]))


@asynccontextmanager
async def checkpoint_service_starts_and_cannot_write(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    async with of.nobody_may_write(of.target, f"{A}.checkpoints.internal"):
        await of.commit(READERS, 30)
        of.process("checkpoint").kill()
        yield


@asynccontextmanager
async def offset_syncs_cannot_be_written(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    async with of.nobody_may_write(of.source, f"mm2-offset-syncs.{B}.internal"):
        of.records_at_once = 10 * RECORDS_AT_ONCE
        try:
            yield
        finally:
            of.records_at_once = RECORDS_AT_ONCE


@asynccontextmanager
async def writers_limited(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    await of.limit_writers(QUOTA_BYTES_PER_SECOND)
    try:
        yield
    finally:
        await of.limit_writers(None)


@asynccontextmanager
async def group_behind_the_end(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    await of.commit(DREAMERS, 1_000_000_000)
    yield


@asynccontextmanager
async def copy_changed_again_and_again(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    async def is_changed_back() -> bool:
        return await of.config_of_copy(CHANGED, "retention.ms") == "700000000"

    for days in range(1, 5):
        await eventually(is_changed_back)
        await of.change_copy(CHANGED, "retention.ms", f"{days * 86_400_000}")
    await eventually(is_changed_back)
    yield


@asynccontextmanager
async def somebody_else_writes(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    await of.write(VISITED, b"ours", b"ours")
    await of.copied(VISITED, 2)
    await of.write(f"{A}.{VISITED}", b"stranger", into=of.b)
    await of.write(VISITED, b"ours")
    await of.copied(VISITED, 3)
    yield


@asynccontextmanager
async def records_lost(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    await of.pause(LOST)

    async def is_paused() -> bool:
        return (await of.partition(LOST)).state == pb.PARTITION_STATE_PAUSED

    await eventually(is_paused)
    await of.write(LOST, *(b"gone" for _ in range(40)))
    await retry_admin(lambda: of.source.delete_records({TopicPartition(LOST, 0): 30}))
    await of.resume(LOST)
    await of.copied(LOST, 40)
    yield


@asynccontextmanager
async def record_too_large(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    await of.write(SMALL, b"x" * 1_500_000)
    yield
