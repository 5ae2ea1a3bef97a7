"""A compacted topic as a dictionary, beside a model of it."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.batches import EndMarker
from twinlog.errors import KafkaError, TransientKafkaError, WireFormatError
from twinlog.kafka.reasons import KafkaReason
from twinlog.kafka.table import STALE_SECONDS, Table
from twinlog.model import Record, TimestampType, TopicPartition
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.broker.compaction import compact
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.testing.virtual_time import FakeClock, VirtualTimeLoop

P = TopicPartition("mm2-things.A.internal", 0)


class Numbers:
    """Rows `b"n/KEY"`: `b"1 NUMBER"`."""

    def decode_key(self, key: bytes) -> str | None:
        return key[2:].decode() if key.startswith(b"n/") else None

    def decode_value(self, key: str, value: bytes) -> int:
        version, _, number = value.partition(b" ")
        if version != b"1":
            raise WireFormatError(f"{key} has format {version!r}", reason="WIRE_VERSION")
        return int(number)

    def encode(self, key: str, value: int | None) -> tuple[bytes, bytes | None]:
        return b"n/" + key.encode(), None if value is None else b"1 %d" % value


def table_on(cluster: FakeCluster) -> Table[str, int]:
    return Table(cluster=cluster, topic=P.topic, codec=Numbers())


def record(key: str, value: int | None) -> Record:
    raw, stored = Numbers().encode(key, value)
    return Record(
        offset=-1,
        timestamp_ms=0,
        key=raw,
        value=stored,
        headers=(),
        timestamp_type=TimestampType.CREATE_TIME,
        producer_id=-1,
    )


def content(cluster: FakeCluster) -> dict[str, int]:
    """What the log says: the model."""
    rows: dict[str, int] = {}
    for each in cluster.records(P, read_committed=True):
        key = None if each.key is None else Numbers().decode_key(each.key)
        if key is not None:
            rows.pop(key, None)
            if each.value is not None:
                rows[key] = Numbers().decode_value(key, each.value)
    return rows


KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.one_of(st.none(), st.integers(0, 3))
CHANGES = st.dictionaries(KEYS, VALUES, min_size=1, max_size=3)
STEPS = st.one_of(
    st.tuples(st.just("load"), st.none()),
    st.tuples(st.just("put"), CHANGES),
    st.tuples(st.just("another writer"), CHANGES),
    st.tuples(st.just("aborted"), CHANGES),
    st.tuples(st.just("compact"), st.none()),
    st.tuples(st.just("lose the tail"), st.integers(1, 4)),
    st.tuples(st.just("create it again"), st.none()),
    st.tuples(st.just("fail"), st.none()),
    st.tuples(st.just("be silent"), st.none()),
)


async def live(steps: list[tuple[str, Any]]) -> None:
    cluster = FakeCluster("B", clock=FakeClock())
    cluster.add_topic(P.topic, configs={"cleanup.policy": "compact"})
    table = table_on(cluster)
    for step, what in steps:
        match step:
            case "put":
                await table.load()
                await table.put(what)
                assert table.rows == content(cluster)
            case "another writer":
                cluster.append_transaction(P, [record(*each) for each in what.items()], EndMarker.COMMIT)
            case "aborted":
                cluster.append_transaction(P, [record(*each) for each in what.items()], EndMarker.ABORT)
            case "compact":
                compact(cluster.partition(P))
            case "lose the tail":
                cluster.truncate(P, max(0, cluster.log(P).end_offset - what))
            case "create it again":
                await cluster.delete_topics([P.topic])
                cluster.add_topic(P.topic, configs={"cleanup.policy": "compact"})
            case "fail":
                before = dict(table.rows)
                undo = cluster.intercept("fetch", fail)
                try:
                    await table.load()
                except TransientKafkaError:
                    assert table.rows == before
                undo()
            case "be silent":
                await wait_or_stop(asyncio.Event(), STALE_SECONDS)
        if step in ("load", "create it again", "be silent"):
            assert await table.load() == content(cluster)
    assert await table.load() == await table_on(cluster).load() == content(cluster)


def fail(call: Call) -> None:
    raise TransientKafkaError("the broker went away")


@given(st.lists(STEPS, max_size=25))
def test_a_table_says_what_its_log_says(steps: list[tuple[str, Any]]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(live(steps))


async def test_without_a_topic_a_table_is_empty_and_its_first_row_creates_it() -> None:
    cluster = FakeCluster("B")
    table = table_on(cluster)
    assert await table.load() == {}
    assert await table.put({"gone": None}) == 0
    assert P.topic not in cluster.topics
    assert await table.put({"a": 1, "b": 2}) == 2
    assert cluster.topics[P.topic].configs["cleanup.policy"] == "compact"
    assert await table_on(cluster).load() == {"a": 1, "b": 2}


async def test_only_differences_are_written_and_replaced_rows_go() -> None:
    cluster = FakeCluster("B")
    table = table_on(cluster)
    await table.put({"a": 1, "b": 2})
    assert await table.put({"a": 1, "b": 3}) == 1
    assert await table.replace({"b": 3, "c": 4}) == 2
    assert await table_on(cluster).load() == {"b": 3, "c": 4}


async def test_what_other_tables_keep_in_the_topic_is_theirs() -> None:
    cluster = FakeCluster("B")
    table = table_on(cluster)
    await table.put({"a": 1})
    async with cluster.writer() as writer:
        await writer.append(P, key=b"other", value=b"99 what")
    assert await table.load() == {"a": 1}
    await table.replace({})
    assert [each.key for each in cluster.records(P)] == [b"n/a", b"other", b"n/a"]


async def test_a_row_of_a_later_format_is_refused_with_its_place_unless_it_was_replaced() -> None:
    cluster = FakeCluster("B")
    table = table_on(cluster)
    await table.put({"a": 1})
    async with cluster.writer() as writer:
        await writer.append(P, key=b"n/b", value=b"2 new")
        with pytest.raises(WireFormatError, match=r"internal at offset 1: b has format") as refused:
            await table.load()
        assert (refused.value.reason, refused.value.metadata["offset"]) == ("WIRE_VERSION", "1")
        assert table.rows == {"a": 1}
        await writer.append(P, key=b"n/b", value=b"1 7")
    assert await table.load() == {"a": 1, "b": 7}


async def test_a_log_that_shows_less_than_was_told_is_no_whole_table() -> None:
    cluster = FakeCluster("B", clock=FakeClock())
    table = table_on(cluster)
    await table.put({"a": 1})

    def tell_more(call: Call) -> None:
        call.result[P] = call.result[P]._replace(offset=call.result[P].offset + 1)

    undo = cluster.intercept("log_ends", tell_more, after=True)
    with pytest.raises(TransientKafkaError, match="returned no records from offset 1 on"):
        await table.load()
    undo()
    assert await table.load() == {"a": 1}


async def test_after_a_failed_put_it_is_known_what_is_stored() -> None:
    cluster = FakeCluster("B")
    table = table_on(cluster)

    def refuse_b(call: Call) -> None:
        if call.arguments["key"] == b"n/b":
            raise TransientKafkaError("the broker went away")

    undo = cluster.intercept("append", refuse_b)
    rows: Mapping[str, int | None] = {"a": 1, "b": 2, "c": 3}
    with pytest.raises(TransientKafkaError):
        await table.put(rows)
    assert table.rows == {"a": 1, "c": 3}
    undo()
    assert await table.put(rows) == 1
    assert await table_on(cluster).load() == rows


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_what_a_failed_put_may_have_written_is_written_over_also_by_what_was_there_before(
    is_cancelled: bool,
) -> None:
    cluster = FakeCluster("B")
    table = table_on(cluster)
    await table.put({"a": 1})

    def answer_is_lost(call: Call) -> None:
        if is_cancelled:
            raise asyncio.CancelledError
        raise TransientKafkaError("the broker went away")

    undo = cluster.intercept("append", answer_is_lost, after=True)
    for rows in ({"a": 2}, {"a": 1, "b": 2}):
        with suppress(TransientKafkaError):
            await table.replace(rows)
    undo()
    await table.replace({"a": 1})
    assert await table_on(cluster).load() == table.rows == {"a": 1}
    assert await table.replace({"a": 1}) == 0


async def test_a_topic_that_was_created_again_is_read_from_its_start_however_long_it_is() -> None:
    cluster = FakeCluster("B")
    table = table_on(cluster)
    await table.put({"a": 1})
    await table.load()
    await cluster.delete_topics([P.topic])
    await table_on(cluster).put({"b": 2, "c": 3})
    assert await table.load() == {"b": 2, "c": 3}


async def test_a_tombstone_that_was_gone_before_it_was_read_is_not_missed() -> None:
    cluster = FakeCluster("B")
    table = table_on(cluster)
    await table.put({"a": 1, "b": 2})
    await table.load()
    other = table_on(cluster)
    await other.load()
    await other.put({"a": None})
    cluster.punch_holes(P, {0, 2})
    await wait_or_stop(asyncio.Event(), STALE_SECONDS)
    assert await table.load() == {"b": 2}


async def test_a_topic_that_was_deleted_is_created_again_with_every_row() -> None:
    cluster = FakeCluster("B")
    table = table_on(cluster)
    await table.put({"a": 1})
    await cluster.delete_topics([P.topic])
    with pytest.raises(KafkaError, match=P.topic):
        await table.replace({"a": 1, "b": 2})
    await table.replace({"a": 1, "b": 2})
    assert await table_on(cluster).load() == {"a": 1, "b": 2}


@pytest.mark.parametrize("loss", ["deleted", "created again", "tail"])
async def test_a_table_that_keeps_its_rows_writes_again_what_its_topic_has_lost(loss: str) -> None:
    cluster = FakeCluster("B")
    table = table_on(cluster)
    table.keeps = True
    await table.put({"a": 1, "b": 2})
    await table.put({"a": 3, "b": None, "c": 4})
    assert await table.load() == {"a": 3, "c": 4}
    assert not await table.write_again()
    if loss == "tail":
        cluster.truncate(P, 2)
    else:
        await cluster.delete_topics([P.topic])
    if loss == "created again":
        cluster.add_topic(P.topic)
    for _ in range(2):
        assert await table.load() == {"a": 3, "c": 4}
    assert await table.write_again()
    assert await table.load() == await table_on(cluster).load() == {"a": 3, "c": 4}
    assert not await table.write_again()


async def test_a_table_that_keeps_its_rows_takes_those_of_a_topic_that_its_owner_has_written_again() -> None:
    cluster = FakeCluster("B")
    table = table_on(cluster)
    table.keeps = True
    await table.put({"a": 1, "b": 2})
    await table.load()
    await cluster.delete_topics([P.topic])
    assert await table.load() == {"a": 1, "b": 2}
    await table_on(cluster).put({"b": 3})
    assert await table.load() == {"b": 3}
    assert not await table.write_again()


async def test_a_broker_that_does_not_know_a_topic_for_a_moment_takes_no_kept_row() -> None:
    cluster = FakeCluster("B")
    table = table_on(cluster)
    table.keeps = True
    await table.put({"a": 1})
    await table.load()

    def unknown(call: Call) -> None:
        undo()
        call.result[P.topic] = TransientKafkaError("no such topic", reason=KafkaReason.TOPIC_UNKNOWN)

    undo = cluster.intercept("describe_topics", unknown, after=True)
    assert await table.load() == {"a": 1}
    assert await table.load() == {"a": 1}
    assert not await table.write_again()


@pytest.mark.parametrize("is_written", [False, True])
async def test_what_was_not_written_again_at_the_first_try_is_written_at_the_next(is_written: bool) -> None:
    cluster = FakeCluster("B")
    table = table_on(cluster)
    table.keeps = True
    await table.put({"a": 1, "b": 2, "c": 3})
    await table.load()
    await cluster.delete_topics([P.topic])

    def refuse_b(call: Call) -> None:
        if call.arguments["key"] == b"n/b":
            raise TransientKafkaError("the broker went away")

    undo = cluster.intercept("append", refuse_b, after=is_written)
    for _ in range(2):
        assert await table.load() == {"a": 1, "b": 2, "c": 3}
        with pytest.raises(TransientKafkaError):
            await table.write_again()
    undo()
    assert await table.load() == {"a": 1, "b": 2, "c": 3}
    assert await table.write_again() is not is_written
    assert await table_on(cluster).load() == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize("loss", ["deleted", "tail"])
async def test_a_former_owner_writes_nothing_again_over_what_others_have_written_since(loss: str) -> None:
    cluster = FakeCluster("B")
    table, other = table_on(cluster), table_on(cluster)
    table.keeps = True
    await table.put({"a": 1})
    await table.put({"a": 2, "b": 3})
    await table.load()
    if loss == "deleted":
        await other.load()
        await other.replace({})
        await cluster.delete_topics([P.topic])
    else:
        cluster.truncate(P, 1)
        await other.load()
        await other.put({"a": 4})
    table.distrust()
    assert await table.load() == ({} if loss == "deleted" else {"a": 4})
    assert not await table.write_again()


async def test_a_table_that_was_emptied_stays_empty_if_its_topic_loses_that() -> None:
    cluster = FakeCluster("B")
    table = table_on(cluster)
    table.keeps = True
    await table.put({"a": 1})
    await table.put({"a": None})
    assert await table.load() == {}
    cluster.truncate(P, 1)
    assert await table.load() == {}
    assert await table.write_again()
    assert await table_on(cluster).load() == {}
