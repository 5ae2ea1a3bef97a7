"""The fetcher of whole batches: long polls, moves, refusals."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from twinlog.batches import DecodedRecord, NewRecord, build_batch, decode_batch, read_batches
from twinlog.errors import FatalKafkaError, TransientKafkaError
from twinlog.kafka.deadline import pause
from twinlog.kafka.raw import (
    FetchedPartition,
    FetchFailure,
    RawFetcher,
    RawProducer,
    prepare_to_fetch,
    prepare_to_produce,
)
from twinlog.model import TopicPartition
from twinlog.testing.raw_copying import QUICK, open_fetcher, open_session
from twinlog.testing.source_batches import source_batch
from unit.kafka.source_rig import SourceRig, source_rig

P = TopicPartition("t", 0)
LONG = {"fetch.max.wait.ms": "120000"}


def batch(*values: bytes) -> bytes:
    return source_batch([DecodedRecord(at, 1, None, value, ()) for at, value in enumerate(values)])


@asynccontextmanager
async def polling(
    properties: Mapping[str, str] | None = None, *, timeout_seconds: float = 480.0
) -> AsyncIterator[tuple[SourceRig, RawFetcher]]:
    async with (
        source_rig({P: 1}, timeout_seconds=timeout_seconds) as source,
        open_fetcher(source.session, properties) as fetcher,
    ):
        await source.session.leader(P, "get to know it")
        yield source, fetcher


async def begin_long_polls(fetcher: RawFetcher, positions: Mapping[TopicPartition, int]) -> None:
    """The bounds of all are known then, and nothing is to come but data."""
    unknown = set(positions)
    while unknown:
        unknown -= (await fetcher.poll(positions, max_wait_seconds=5)).keys()
    assert await fetcher.poll(positions, max_wait_seconds=0.1) == {}
    assert all(map(fetcher.is_asked, positions))


def values_of(fetched: FetchedPartition | FetchFailure) -> list[bytes | None]:
    assert isinstance(fetched, FetchedPartition), fetched
    return [record.value for each in read_batches(fetched.records) for record in decode_batch(each)]


async def test_data_ends_a_long_poll_at_once() -> None:
    async with polling(LONG) as (source, fetcher):
        await begin_long_polls(fetcher, {P: 0})
        source.append(P, [batch(b"v")])
        began = asyncio.get_running_loop().time()
        answers = await fetcher.poll({P: 0}, max_wait_seconds=60)
        assert asyncio.get_running_loop().time() - began < 1
    assert values_of(answers[P]) == [b"v"]


async def test_quiet_partitions_answer_with_their_bounds() -> None:
    async with polling() as (source, fetcher):
        source.append(P, [batch(b"1", b"2", b"3")])
        fetched = (await fetcher.poll({P: 3}, max_wait_seconds=5))[P]
    assert isinstance(fetched, FetchedPartition)
    assert len(fetched.records) == 0
    assert (fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset) == (3, 3, 0)


async def test_an_answer_for_another_position_is_thrown_away() -> None:
    async with polling() as (source, fetcher):
        source.append(P, [batch(b"0"), batch(b"1")])
        await fetcher.request({P: 0})
        await pause(1)
        assert P in fetcher.answers.ready
        assert await fetcher.poll({}, max_wait_seconds=0) == {}
        answers = await fetcher.poll({P: 1}, max_wait_seconds=5)
    assert values_of(answers[P]) == [b"1"]


async def test_what_was_answered_while_nothing_was_wanted_is_thrown_away() -> None:
    """A partition that is paused for long continues with what its log holds then."""
    async with polling() as (source, fetcher):
        await begin_long_polls(fetcher, {P: 0})
        source.append(P, [batch(b"gone", b"kept")])
        await fetcher.pause(5)
        source.partition(P).log.delete_before(1)
        await fetcher.pause(0)
        (answer,) = (await fetcher.poll({P: 0}, max_wait_seconds=5)).values()
    assert isinstance(answer, FetchFailure)
    assert answer.error.reason == "OFFSET_OUT_OF_RANGE"


async def test_a_new_position_need_not_wait_for_the_long_poll_of_the_old_one() -> None:
    async with polling(LONG) as (source, fetcher):
        source.append(P, [batch(b"0")])
        await begin_long_polls(fetcher, {P: 1})
        answers = await fetcher.poll({P: 0}, max_wait_seconds=5)
    assert values_of(answers[P]) == [b"0"]


async def test_one_bad_partition_does_not_stop_the_others() -> None:
    beyond, absent, no_such_partition = (
        TopicPartition(*each) for each in (("beyond", 0), ("absent", 0), ("t", 99))
    )
    positions = {P: 0, beyond: 1000, absent: 0, no_such_partition: 0}
    answers: dict[TopicPartition, FetchedPartition | FetchFailure] = {}
    async with source_rig({P: 1, beyond: 1}) as source, open_fetcher(source.session) as fetcher:
        source.append(P, [batch(b"v")])
        async with asyncio.timeout(60):
            while answers.keys() != positions.keys():
                left = {each: positions[each] for each in positions.keys() - answers.keys()}
                answers |= await fetcher.poll(left, max_wait_seconds=1)
    assert values_of(answers.pop(P)) == [b"v"]
    reasons = {}
    for partition, failure in answers.items():
        assert isinstance(failure, FetchFailure)
        assert isinstance(failure.error, FatalKafkaError)
        assert failure.error.metadata["topic"] == partition.topic
        reasons[partition] = failure.error.reason
    assert reasons == {
        beyond: "OFFSET_OUT_OF_RANGE",
        absent: "TOPIC_UNKNOWN",
        no_such_partition: "TOPIC_UNKNOWN",
    }


async def test_fetch_sizes_are_kept_to_and_one_larger_batch_still_comes() -> None:
    sizes: list[int] = []
    async with polling({"max.partition.fetch.bytes": "10000"}) as (source, fetcher):
        source.append(P, [batch(bytes(50_000)), *[batch(bytes(3_000))] * 5])
        while sum(sizes) < 6:
            fetched = (await fetcher.poll({P: sum(sizes)}, max_wait_seconds=5))[P]
            sizes.append(len(values_of(fetched)))
    assert sizes == [1, 3, 2]


async def test_who_was_prepared_for_its_topics_opens_no_more_connections() -> None:
    """Else the first records after the hand-over from one task to the next would wait for them."""
    async with polling() as (source, fetcher):
        session = source.session
        await prepare_to_produce(session, [P.topic])
        await prepare_to_fetch(session, [P.topic])
        client = await session.client("look")
        leader = client.cluster.leader_for_partition(P)
        connections = set(client._conns)
        assert {(leader, 1), (leader, 2)} <= connections
        async with RawProducer(session, QUICK) as producer:
            await producer.send(P, build_batch([NewRecord(None, b"v", 1)]))
        answers = await fetcher.poll({P: 0}, max_wait_seconds=30)
        assert values_of(answers[P]) == [b"v"]
        assert set(client._conns) == connections


async def test_leaving_ends_a_long_poll() -> None:
    async with source_rig({P: 1}, timeout_seconds=480) as source:
        session = source.session
        async with open_fetcher(session, LONG) as fetcher:
            await begin_long_polls(fetcher, {P: 0})
            client = await session.client("look")
            asked = [client._conns[place] for place in session.busy]
            assert [connection.connected() for connection in asked] == [True]
        # A connection whose answer was waited for would be used again.
        assert not asked[0].connected()


async def test_a_cluster_that_is_away_is_a_transient_error() -> None:
    async with polling(timeout_seconds=20.0) as (source, _):
        await source.kafka.stop_node(1)
        properties = {"bootstrap.servers": source.kafka.bootstrap}
        async with open_session("A", properties) as session, open_fetcher(session) as fetcher:
            with pytest.raises(TransientKafkaError) as caught:
                await fetcher.poll({P: 0}, max_wait_seconds=1)
    assert caught.value.reason == "KAFKA_UNAVAILABLE"
