"""Reading positions: an open transaction of another slot must not hide what is committed behind it."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest

from twinlog.batches import OutgoingBatch
from twinlog.batches.header import read_batches
from twinlog.batches.outgoing import Seal, sealed
from twinlog.batches.records import decode_batch
from twinlog.errors import KafkaError, TransientKafkaError, WireFormatError
from twinlog.kafka.deadline import pause
from twinlog.kafka.ports import FetchedRecords, OffsetSpec
from twinlog.model import Flow, Record, TopicPartition
from twinlog.wire.murmur2 import partition_for_key
from twinlog.wire.source_offset import SOURCE_CONNECTOR, encode_source_offset, source_offset_key
from twinlog_source.log.fact_records import control_key
from twinlog_source.log.facts import PauseFact
from twinlog_source.log.gaps import Gap, gap_key, gap_record
from twinlog_source.log.positions import PositionsLog
from twinlog_source.task.writing.positions_topic import PositionsTopic

TOPIC = TopicPartition("positions", 0)
A = TopicPartition("a", 0)
B = TopicPartition("b", 0)
PAUSED = PauseFact(topic=None, partition=None, by="root", at_ms=1)


@dataclass(slots=True)
class Log:
    """One partition of the positions topic; readers see up to `stable`."""

    records: list[Record] = field(default_factory=list)
    stable: int | None = None
    fetches: int = 0
    stable_after_fetches: int = 0

    def store(self, partition: TopicPartition, value: bytes | None) -> None:
        key = source_offset_key("A", partition)
        offset = len(self.records)
        self.records.append(Record(offset=offset, timestamp_ms=offset, key=key, value=value))

    def take(self, stored: Mapping[TopicPartition, OutgoingBatch]) -> None:
        for outgoing in stored.values():
            (batch,) = read_batches(sealed(outgoing, Seal(-1, -1, -1, False)))
            for record in decode_batch(batch):
                headers = tuple((name.decode(), value) for name, value in record.headers)
                self.records.append(
                    Record(
                        offset=len(self.records),
                        timestamp_ms=0,
                        key=record.key,
                        value=record.value,
                        headers=headers,
                    )
                )

    async def list_offsets(
        self, spec: OffsetSpec, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        stable = len(self.records) if self.stable is None else self.stable
        ends = {OffsetSpec.EARLIEST: 0, OffsetSpec.LAST_STABLE: stable}
        return {TOPIC: ends.get(spec, len(self.records))}

    async def fetch(
        self, partition: TopicPartition, offset: int, *, max_wait_seconds: float, max_bytes: int = 1 << 20
    ) -> FetchedRecords:
        self.fetches += 1
        if self.fetches > self.stable_after_fetches:
            self.stable = None
        end = len(self.records) if self.stable is None else self.stable
        await asyncio.sleep(0)  # noqa: TID251 (as a broker that has nothing new gives way)
        return FetchedRecords(
            records=self.records[offset:end],
            next_offset=max(offset, end),
            log_start_offset=0,
            high_watermark=end,
        )


def positions_log(log: Log) -> PositionsLog:
    return PositionsLog(
        list_offsets=log.list_offsets, reader=log, topic=TOPIC.topic, partition_count=1, source_alias="A"
    )


async def test_the_newest_record_of_each_partition_counts() -> None:
    log = Log()
    log.store(A, encode_source_offset(5))
    log.store(B, encode_source_offset(7))
    log.store(A, encode_source_offset(9))
    positions = positions_log(log)
    assert await positions.refresh() == {A: 9, B: 7}
    log.store(B, encode_source_offset(0))
    assert await positions.refresh() == {A: 9}


async def test_a_position_says_that_nothing_was_written_until_one_does_not() -> None:
    log = Log()
    topic = PositionsTopic(
        topic="positions", partition_count=1, source_alias="A", connector_name=SOURCE_CONNECTOR
    )
    positions = positions_log(log)
    for position, nothing_written in ((1, {A}), (2, {A, B}), (3, {B})):
        stored = topic.batches(dict.fromkeys((A, B), position), [], nothing_written=nothing_written, now_ms=0)
        log.take(stored)
        assert set((await positions.refresh()).values()) == {position}
        assert positions.nothing_written == nothing_written


async def test_a_position_of_zero_is_known_until_the_first_one_above_it_takes_it_back() -> None:
    log = Log()
    topic = PositionsTopic(
        topic="positions", partition_count=1, source_alias="A", connector_name=SOURCE_CONNECTOR
    )

    def commit(position: int, *, leaving_zero: bool = False) -> None:
        leaving = [A] if leaving_zero else []
        log.take(topic.batches({A: position}, [], leaving_zero=leaving, now_ms=0))

    positions = positions_log(log)
    assert await positions.refresh() == {}
    commit(0)
    assert await positions.refresh() == {A: 0}
    commit(7, leaving_zero=True)
    assert await positions.refresh() == {A: 7}
    # Somebody else resets it, as MM2's tools do: our mark must not stand against that.
    log.store(A, None)
    assert await positions.refresh() == {}
    commit(0)
    log.store(A, encode_source_offset(9))
    assert await positions.refresh() == {A: 9}


async def test_it_waits_for_what_an_open_transaction_hides() -> None:
    log = Log(stable=1, stable_after_fetches=4)
    log.store(A, encode_source_offset(5))
    log.store(B, encode_source_offset(1))
    log.store(A, encode_source_offset(9))
    assert (await positions_log(log).refresh())[A] == 9
    assert log.fetches > 4


async def test_two_readers_side_by_side_do_not_bring_old_positions_back() -> None:
    log = Log()
    for position in range(1, 50):
        log.store(A, encode_source_offset(position))
    positions = positions_log(log)
    async with asyncio.TaskGroup() as group:
        readers = [group.create_task(positions.refresh(), name=f"reader {n}") for n in range(5)]
    assert {reader.result()[A] for reader in readers} == {49}


async def test_a_damaged_record_concerns_its_partition_alone() -> None:
    log = Log()
    log.store(A, b'{"offset":"many"}')
    log.store(B, encode_source_offset(7))
    positions = positions_log(log)
    assert await positions.refresh() == {B: 7}
    assert set(positions.unreadable) == {A}
    log.store(A, encode_source_offset(3))
    assert (await positions.refresh())[A] == 3
    assert not positions.unreadable


async def test_a_partition_that_cannot_be_read_is_an_error() -> None:
    log = Log()

    async def away(
        spec: OffsetSpec, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        return {TOPIC: TransientKafkaError("moving")}

    positions = positions_log(log)
    positions.list_offsets = away
    with pytest.raises(KafkaError, match="moving"):
        await positions.refresh()


@dataclass(slots=True)
class GrownLog:
    """A positions topic of several partitions; records lie where their key belonged then."""

    logs: dict[int, list[Record]] = field(default_factory=dict)
    count: int = 5

    def store(self, partition: TopicPartition, position: int, *, at_ms: int) -> int:
        return self.put(source_offset_key("A", partition), encode_source_offset(position), at_ms=at_ms)

    def put(self, key: bytes, value: bytes | None, *, at_ms: int) -> int:
        number = partition_for_key(key, self.count)
        log = self.logs.setdefault(number, [])
        log.append(Record(offset=len(log), timestamp_ms=at_ms, key=key, value=value))
        return number

    async def list_offsets(
        self, spec: OffsetSpec, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        is_start = spec is OffsetSpec.EARLIEST
        return {one: 0 if is_start else len(self.logs.get(one.partition, ())) for one in partitions}

    async def fetch(
        self, partition: TopicPartition, offset: int, *, max_wait_seconds: float, max_bytes: int = 1 << 20
    ) -> FetchedRecords:
        log = self.logs.get(partition.partition, [])
        return FetchedRecords(
            records=log[offset:], next_offset=len(log), log_start_offset=0, high_watermark=len(log)
        )


async def test_gaps_that_left_the_ledger_are_not_remembered_for_ever() -> None:
    """A copy that stays behind a short retention finds one after the other, and the owner joins them."""
    log = GrownLog()
    positions = PositionsLog(
        list_offsets=log.list_offsets,
        reader=log,
        topic=TOPIC.topic,
        partition_count=log.count,
        source_alias="A",
    )
    for begin in range(1000):
        gap = Gap(partition=A, from_offset=begin, to_offset=begin + 1, reason="RETENTION", found_at_ms=begin)
        log.put(*gap_record(Flow("A", "B"), gap), at_ms=begin)
        log.put(gap_key(Flow("A", "B"), gap.identity), None, at_ms=begin)
        await positions.refresh()
        assert not positions.gaps
        assert len(positions.newest) == 0


async def test_a_gap_that_was_removed_stays_so_in_a_topic_that_was_given_more_partitions() -> None:
    log = GrownLog()
    gaps = [
        Gap(partition=A, from_offset=begin, to_offset=begin + 1, reason="RETENTION", found_at_ms=begin)
        for begin in range(20)
    ]
    for gap in gaps:
        log.put(*gap_record(Flow("A", "B"), gap), at_ms=1000)
    log.count = 7
    for gap in gaps:
        log.put(gap_key(Flow("A", "B"), gap.identity), None, at_ms=2000)
    positions = PositionsLog(
        list_offsets=log.list_offsets, reader=log, topic=TOPIC.topic, partition_count=7, source_alias="A"
    )
    for _ in range(2):
        await positions.refresh()
        assert not positions.gaps
    log.put(*gap_record(Flow("A", "B"), gaps[0]), at_ms=3000)
    await positions.refresh()
    assert list(positions.gaps) == [gaps[0].identity]


@pytest.mark.parametrize("grown_to", [6, 7, 8, 9, 10, 13, 25])
async def test_in_a_topic_that_was_given_more_partitions_the_newest_position_counts(grown_to: int) -> None:
    log = GrownLog()
    copied = [TopicPartition("t", number) for number in range(20)]
    before = {each: log.store(each, 10, at_ms=1000) for each in copied}
    log.count = grown_to
    after = {each: log.store(each, 20, at_ms=2000) for each in copied}
    moved_down = [each for each in copied if after[each] < before[each]]
    assert moved_down or grown_to % 5 == 0, "an old record is read after the new one"
    positions = PositionsLog(
        list_offsets=log.list_offsets,
        reader=log,
        topic=TOPIC.topic,
        partition_count=grown_to,
        source_alias="A",
    )
    assert await positions.refresh() == dict.fromkeys(copied, 20)
    for each in copied:
        log.store(each, 5, at_ms=2000)  # the same millisecond, later in its log
    assert await positions.refresh() == dict.fromkeys(copied, 5)


@pytest.mark.parametrize("subject", ["pause", "topic", "invented"])
def test_a_fact_of_a_later_release_stops_the_reading_and_an_unknown_kind_does_not(subject: str) -> None:
    log = Log()
    log.store(A, encode_source_offset(7))
    value = b'{"format":2,"by":"ops","at_ms":1,"topic_id":"x","known_partitions":1}'
    log.records.append(Record(offset=1, timestamp_ms=0, key=control_key("A", subject, "a"), value=value))
    log.records.append(Record(offset=2, timestamp_ms=0, key=control_key("other", "pause"), value=value))

    async def scenario() -> None:
        positions = positions_log(log)
        for _ in range(2):  # it is not passed over the second time
            with pytest.raises(WireFormatError) as refused:
                await positions.refresh()
            assert refused.value.reason == "WIRE_VERSION"

    if subject == "invented":
        assert asyncio.run(positions_log(log).refresh()) == {A: 7}
    else:
        asyncio.run(scenario())


@dataclass(slots=True)
class SlowLog(Log):
    """Each fetch brings one record, and takes so long."""

    fetch_seconds: float = 30.0

    async def fetch(
        self, partition: TopicPartition, offset: int, *, max_wait_seconds: float, max_bytes: int = 1 << 20
    ) -> FetchedRecords:
        await pause(self.fetch_seconds)
        return FetchedRecords(
            records=self.records[offset : offset + 1],
            next_offset=offset + 1,
            log_start_offset=0,
            high_watermark=len(self.records),
        )


async def test_a_long_log_is_read_for_as_long_as_it_takes() -> None:
    log = SlowLog()
    for position in range(1, 100):
        log.store(A, encode_source_offset(position))
    assert await positions_log(log).refresh() == {A: 99}


async def test_a_transaction_that_stays_open_is_named() -> None:
    log = Log(stable=1, stable_after_fetches=10_000)
    log.store(A, encode_source_offset(5))
    log.store(A, encode_source_offset(9))
    positions = positions_log(log)
    with pytest.raises(TransientKafkaError, match="a transaction stayed open for 60 s") as unstable:
        await positions.refresh()
    assert unstable.value.reason == "POSITIONS_UNSTABLE"
    log.stable = None
    assert await positions.refresh() == {A: 9}


async def test_of_what_a_fetch_brings_only_the_newest_record_of_each_key_is_parsed() -> None:
    log = Log()
    for position in range(1, 1000):
        log.store(A, encode_source_offset(position))
        log.store(B, encode_source_offset(position + 7))
    positions = positions_log(log)
    assert await positions.refresh() == {A: 999, B: 1006}
    assert positions.parsed == 2
    assert positions.written_at == {A: (0, 1996), B: (0, 1997)}
