"""Settings of the source service, set in one file for two flows, and what both clusters then show.

What one flow is told differs from what the other is told; what the second leaves undone is looked at once the
first has done it. `tests/unit/config/every_key.txt` names the test of each key.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from integration.source.cut_link import cut_link
from integration.source.source_rig import GrowingLog, Rig, open_rig
from twinlog.batches import NewRecord
from twinlog.batches.codec import Codec
from twinlog.clock import SystemClock
from twinlog.local.port_lease import PortLease
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, unique_name, write_batches
from twinlog.testing.service_process import ServiceProcess
from twinlog.wire.offset_sync import OffsetSync, decode_offset_sync
from twinlog_source.partitions.planner import FIRST_BACKLOG_RECORDS

PARTITIONS = 4
TRIMMED = 10
"""Offsets that the topics with few records have lost at their beginning."""
BATCH_RECORDS = 20_000
ROUNDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Two:
    """Two flows of one service, from one cluster to another, of the same topics."""

    pair: KafkaPair
    one: Rig
    other: Rig
    wide: str
    """Has more records than one slot is to begin with."""
    kept: str
    plain: str

    def settings(self) -> dict[str, str]:
        one, other = self.one, self.other
        return {
            "clusters": f"{one.a}, {one.b}, {other.a}, {other.b}",
            f"{other.a}.bootstrap.servers": one.source_servers,
            f"{other.b}.bootstrap.servers": one.target_servers,
            f"{other.a}->{other.b}.enabled": "true",
            "emit.heartbeats.enabled": "false",
            "topics": f"{self.wide},{self.kept},{self.plain}",
            # No epoch ends, so what the first one began with is seen to the end.
            "twinlog.epoch.seconds": "3600",
            "twinlog.epoch.max.seconds": "3600",
            f"{one.a}->{one.b}.tasks.max": "1",
            # Our own key wins over Connect's.
            f"{other.a}->{other.b}.tasks.max": "1",
            f"{other.a}->{other.b}.twinlog.max.slots": "2",
            f"{one.b}.offset.flush.interval.ms": "200",
            f"{other.b}.offset.flush.interval.ms": "3600000",
            f"{one.a}->{one.b}.twinlog.offsets": "translated",
            f"{one.a}->{one.b}.twinlog.offsets.preserved.topics": self.kept,
            f"{other.a}->{other.b}.twinlog.offsets": "auto",
            f"{other.a}->{other.b}.twinlog.offsets.fill.total": str(TRIMMED + TRIMMED // 2),
            f"{other.a}->{other.b}.twinlog.offsets.translated.topics": self.wide,
        }

    async def fill(self) -> None:
        await self.one.create(self.wide, PARTITIONS)
        now_ms = SystemClock().now_ms()
        records = [NewRecord(None, b"x", now_ms)] * BATCH_RECORDS
        batches = FIRST_BACKLOG_RECORDS // BATCH_RECORDS + 1
        await write_batches(
            self.pair.a, self.wide, [(number % PARTITIONS, Codec.LZ4, records) for number in range(batches)]
        )
        for topic in (self.kept, self.plain):
            await self.one.create(topic)
            await self.one.produce(topic, [b"%d" % number for number in range(2 * TRIMMED)])
            partition = TopicPartition(topic, 0)
            assert await self.one.source.delete_records({partition: TRIMMED}) == {partition: None}


@pytest.fixture
def ports() -> PortLease:
    return PortLease(2)


async def test_slots_syncs_kept_offsets_and_the_way_of_tasks_are_as_the_file_says(
    kafka_pair: KafkaPair, tmp_path: Path, ports: PortLease
) -> None:
    listen, relay = ports.ports
    try:
        async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as one, cut_link(relay, listen):
            other = replace(one, a=unique_name("c"), b=unique_name("d"))
            names = {name: unique_name(name) for name in ("wide", "kept", "plain")}
            two = Two(pair=kafka_pair, one=one, other=other, **names)
            await two.fill()
            one.extra |= two.settings() | {
                "twinlog.source.worker.listen": f"127.0.0.1:{listen}",
                "twinlog.source.worker.endpoint": f"127.0.0.1:{relay}",
            }
            async with one.configsync() as configsync:
                await _copies_are_there(two)
                async with one.running(configsync) as service:
                    await _slots(two, service)
                    await eventually(lambda: _joined_through(service, relay))
                    assert not _joined_through(service, listen)
                    await _kept_offsets(two, service)
                    await _syncs(two)
                    # Also after everything else.
                    assert await _slots_of(one, service, two.wide) == {0}
    finally:
        ports.release()


async def _copies_are_there(two: Two) -> None:
    """Then the first plan of each flow is of all of them."""
    wanted = {rig.remote(topic) for rig in (two.one, two.other) for topic in (two.wide, two.kept, two.plain)}

    async def made() -> bool:
        return wanted <= set(await two.one.target.list_topics())

    await eventually(made)


async def _slots_of(rig: Rig, service: ServiceProcess, topic: str) -> set[int]:
    return {each.slot for each in await rig.partitions(service, topic)}


async def _slots(two: Two, service: ServiceProcess) -> None:
    """tasks.max, twinlog.max.slots."""

    async def both_copy() -> bool:
        assert await _slots_of(two.other, service, two.wide) == {0, 1}
        assert await _slots_of(two.one, service, two.wide) == {0}
        return True

    await eventually(both_copy)


def _joined_through(service: ServiceProcess, port: int) -> bool:
    """Whether a task holds a connection to this port."""
    below = psutil.Process(service.process.pid).children(recursive=True)
    return any(_is_connected(process, port) for process in below)


def _is_connected(process: psutil.Process, port: int) -> bool:
    try:
        connections = process.net_connections("tcp")
    except psutil.NoSuchProcess:
        return False
    return any(bool(each.raddr) and each.raddr.port == port for each in connections)


async def _kept_offsets(two: Two, service: ServiceProcess) -> None:
    """twinlog.offsets.preserved.topics of the one; twinlog.offsets.fill.total of the other, of which its
    first copy leaves too little for the second."""
    await _begins_at(two.one, two.kept, TRIMMED)
    await _begins_at(two.one, two.plain, 0)

    async def one_of_them_fits() -> bool:
        rows = [row for topic in (two.kept, two.plain) for row in await two.other.partitions(service, topic)]
        assert sorted(row.offsets_reason for row in rows) == ["", "FILL_TOO_LARGE"], rows
        for row in rows:
            await _begins_at(two.other, row.source.topic, 0 if row.offsets_reason else TRIMMED)
        return True

    await eventually(one_of_them_fits)


async def _begins_at(rig: Rig, topic: str, first: int) -> None:
    await rig.same(topic)
    records = await GrowingLog(rig.target, TopicPartition(rig.remote(topic), 0)).records()
    assert records[0].offset == first, topic


async def _syncs(two: Two) -> None:
    """offset.flush.interval.ms: record after record is told of by the one flow, while the other keeps it for
    an hour (but for the first, and one that may always go)."""
    for number in range(ROUNDS):
        await two.one.produce(two.plain, [b"later %d" % number])
        newest = 2 * TRIMMED + number
        for rig in (two.one, two.other):
            await rig.same(two.plain)

        async def is_told(newest: int = newest) -> bool:
            return newest in [sync.upstream_offset for sync in await _syncs_of(two.one, two.plain)]

        await eventually(is_told)
    assert len(await _syncs_of(two.one, two.plain)) >= ROUNDS
    assert len(await _syncs_of(two.other, two.plain)) <= 2


async def _syncs_of(rig: Rig, topic: str) -> list[OffsetSync]:
    log = GrowingLog(rig.source, TopicPartition(f"mm2-offset-syncs.{rig.b}.internal", 0))
    syncs = [decode_offset_sync(record.key, record.value) for record in await log.records()]
    return [sync for sync in syncs if sync.partition.topic == topic]
