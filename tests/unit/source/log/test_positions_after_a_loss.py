"""A positions topic that loses its tail: what is written in its place is read, and what was known stays."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from twinlog.batches import EndMarker
from twinlog.errors import TransientKafkaError
from twinlog.kafka.ports import NewTopic, OffsetSpec
from twinlog.model import Record, TopicPartition
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog.wire.source_offset import encode_source_offset, source_offset_key
from twinlog_source.log.fact_records import control_key, fact_record
from twinlog_source.log.facts import ClaimFact, Fact, OwnerFact
from twinlog_source.log.positions import PositionsLog
from unit.source.log.test_positions import PAUSED, TOPIC, A, B, Log, positions_log


@dataclass(slots=True)
class Target:
    """A positions topic with one partition that may lose its tail; writers say what time it is."""

    cluster: FakeCluster
    positions: PositionsLog
    now_ms: int = 0

    async def put(self, key: bytes, value: bytes | None) -> None:
        self.now_ms += 1
        async with self.cluster.writer() as writer:
            await writer.append(TOPIC, key=key, value=value, timestamp_ms=self.now_ms)

    async def store(self, partition: TopicPartition, position: int) -> None:
        await self.put(source_offset_key("A", partition), encode_source_offset(position))

    async def record(self, fact: Fact) -> None:
        await self.put(*fact_record("A", fact))

    def lose(self, records: int) -> None:
        self.cluster.truncate(TOPIC, self.cluster.log(TOPIC).end_offset - records)


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    cluster = FakeCluster("B", clock=FakeClock())
    await cluster.create_topics([NewTopic(name=TOPIC.topic, partition_count=1, replication_factor=1)])
    async with cluster.reader(read_committed=True) as reader:
        positions = PositionsLog(
            list_offsets=cluster.list_offsets,
            reader=reader,
            topic=TOPIC.topic,
            partition_count=1,
            source_alias="A",
        )
        yield Target(cluster, positions)


@pytest.mark.parametrize("peeks", [False, True])
async def test_what_is_written_after_the_tail_was_lost_is_read(target: Target, peeks: bool) -> None:
    await target.store(A, 5)
    await target.store(B, 1)
    for position in range(6, 20):
        await target.store(A, position)
    await target.positions.refresh()
    target.lose(10)
    await target.store(A, 100)
    if peeks:
        await target.positions.peek()
        assert target.positions.known() == {A: 100, B: 1}
    assert await target.positions.refresh() == {A: 100, B: 1}
    assert target.positions.written_at[A] == (0, 6)
    await target.store(A, 3)  # set back
    assert (await target.positions.refresh())[A] == 3


async def test_what_only_the_lost_tail_had_stays_known(target: Target) -> None:
    """The copies still have what was committed with it, and an operator's pause was promised."""
    await target.store(A, 5)
    await target.put(control_key("A", "pause"), None)
    await target.store(A, 9)
    await target.record(PAUSED)
    await target.positions.refresh()
    target.lose(2)
    for _ in range(2):
        assert await target.positions.refresh() == {A: 9}
        assert target.positions.control.pauses == {(None, None): PAUSED}
    target.now_ms -= 1000  # the clock of another writer: behind what was read, the order of the log counts
    await target.store(A, 7)
    await target.put(control_key("A", "pause"), None)
    assert await target.positions.refresh() == {A: 7}
    assert target.positions.control.pauses == {}


async def test_of_claims_and_signatures_the_log_has_the_last_word_after_a_loss(target: Target) -> None:
    """Clocks of two processes differ."""
    await target.record(ClaimFact(instance="1", at_ms=1))
    await target.record(OwnerFact(instance="1", slots=2, renewed_at_ms=1))
    for position in range(1, 9):
        await target.store(A, position)
    await target.positions.refresh()
    target.lose(9)
    target.now_ms = -1000
    await target.record(ClaimFact(instance="2", at_ms=1))
    await target.record(OwnerFact(instance="2", slots=3, renewed_at_ms=1))
    await target.positions.refresh()
    control = target.positions.control
    assert [mark.instance for mark in (control.claim, control.owner) if mark is not None] == ["2", "2"]


async def test_a_reading_after_a_loss_that_fails_is_continued(target: Target) -> None:
    for position in range(1, 9):
        await target.store(A, position)
    await target.positions.refresh()
    target.lose(4)
    await target.store(A, 100)

    def fail(_call: Call) -> None:
        undo()
        raise TransientKafkaError("moving")

    undo = target.cluster.intercept("fetch", fail)
    with pytest.raises(TransientKafkaError, match="moving"):
        await target.positions.refresh()
    assert await target.positions.refresh() == {A: 100}


async def test_an_open_transaction_is_no_loss() -> None:
    """A leader may say a last stable offset that lies before what its predecessor had shown as stable."""
    log = Log(stable_after_fetches=1000)
    for position in range(1, 9):
        log.store(A, encode_source_offset(position))
    positions = positions_log(log)
    await positions.peek()
    log.stable, fetches = 5, log.fetches
    await positions.peek()
    assert positions.known() == {A: 8}
    assert log.fetches == fetches, "nothing is read again"


async def test_a_loss_is_found_beside_an_open_transaction(target: Target) -> None:
    for position in range(1, 9):
        await target.store(A, position)
    await target.positions.refresh()
    target.lose(6)
    await target.store(A, 100)
    record = Record(offset=0, timestamp_ms=99, key=source_offset_key("A", B), value=encode_source_offset(7))
    number = target.cluster.append_transaction(TOPIC, [record], None)
    await target.positions.peek()
    assert target.positions.known() == {A: 100}
    target.cluster.finish_transaction(TOPIC, number, EndMarker.COMMIT)
    assert await target.positions.refresh() == {A: 100, B: 7}


async def test_a_transaction_that_is_open_again_after_a_loss_brings_no_old_position_back() -> None:
    """Its marker was in the lost tail, so it hides records that were read before."""
    log = Log(stable_after_fetches=1000)
    log.store(B, encode_source_offset(7))
    log.store(A, encode_source_offset(5))
    log.store(A, encode_source_offset(9))
    positions = positions_log(log)
    assert await positions.refresh() == {A: 9, B: 7}
    del log.records[2:]
    log.stable = 0
    await positions.peek()
    assert positions.known() == {A: 9, B: 7}
    log.stable = None
    assert await positions.refresh() == {A: 9, B: 7}


async def test_a_leader_that_shows_less_is_not_taken_for_an_open_transaction(target: Target) -> None:
    """Nobody has to be fenced for that."""
    for position in range(1, 9):
        await target.store(A, position)
    await target.positions.refresh()

    def tell_more(call: Call) -> None:
        if call.arguments["spec"] is OffsetSpec.LATEST:
            call.result[TOPIC] += 5
            undo()

    undo = target.cluster.intercept("list_offsets", tell_more, after=True)
    with pytest.raises(TransientKafkaError, match="returned no records from offset 8 on") as short:
        await target.positions.refresh()
    assert short.value.reason == "KAFKA_UNAVAILABLE"
    assert await target.positions.refresh() == {A: 8}


async def test_each_claim_of_a_fetch_counts(target: Target) -> None:
    for instance in ("1", "2", "3"):
        await target.record(ClaimFact(instance=instance, at_ms=1))
    await target.positions.refresh()
    control = target.positions.control
    assert [claim.instance for claim in (control.former_claim, control.claim) if claim] == ["2", "3"]
