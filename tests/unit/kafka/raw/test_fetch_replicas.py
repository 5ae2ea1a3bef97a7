"""A replica that the leader names (KIP-392) and that cannot serve: the leader does, and nothing spins."""

from collections.abc import Callable

import pytest

from twinlog.batches import DecodedRecord
from twinlog.kafka.clients import FetchOptions
from twinlog.kafka.raw import FetchedPartition, FetchSizes, RawFetcher
from twinlog.model import TopicPartition
from twinlog.testing.simulated_source import SimulatedBrokers
from twinlog.testing.source_batches import source_batch
from twinlog.testing.virtual_time import run_in_virtual_time

ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
BATCH = source_batch([DecodedRecord(0, 0, None, b"v", ())])
LEADER, REPLICA = 1, 2
RACK = FetchOptions(client_rack="near")


async def _read(brokers: SimulatedBrokers, count: int) -> list[int]:
    """Read so many batches of one partition; returns the nodes that were asked."""
    position = 0
    async with RawFetcher(brokers.session(), RACK) as fetcher:
        while position < count:
            answers = await fetcher.poll({ONE: position}, max_wait_seconds=1.0)
            answer = answers.get(ONE)
            if isinstance(answer, FetchedPartition):
                position += len(answer.records) // len(BATCH)
    return [asked.node for asked in brokers.asked]


def _unknown(brokers: SimulatedBrokers) -> None:
    brokers.unknown.add(REPLICA)


def _silent(brokers: SimulatedBrokers) -> None:
    brokers.silent.add(REPLICA)


@pytest.mark.parametrize("trouble", [_unknown, _silent])
def test_a_replica_that_is_not_known_or_does_not_answer_leaves_the_work_to_the_leader(
    trouble: Callable[[SimulatedBrokers], None],
) -> None:
    async def run() -> None:
        brokers = SimulatedBrokers({ONE: LEADER}, preferred={ONE: REPLICA})
        trouble(brokers)
        await brokers.append(ONE, [BATCH])
        nodes = await _read(brokers, 1)
        assert len(nodes) <= 4
        assert nodes[-1] == LEADER
        assert brokers.asked[-1].rack == ""
        assert not brokers.unknown, "the metadata is read again"

    run_in_virtual_time(run())


def test_the_replica_is_asked_again_later() -> None:
    async def run() -> None:
        brokers = SimulatedBrokers({ONE: LEADER}, preferred={ONE: REPLICA}, unknown={REPLICA})
        async with RawFetcher(brokers.session(), RACK) as fetcher:
            while not brokers.asked or brokers.asked[-1].node != REPLICA:
                await fetcher.poll({ONE: 0}, max_wait_seconds=60.0)
        assert brokers.asked[-1].at >= 30.0
        assert len(brokers.asked) < 20

    run_in_virtual_time(run())


def test_a_replaced_broker_takes_no_share_of_what_may_be_fetched() -> None:
    async def run() -> None:
        brokers = SimulatedBrokers({ONE: 1, OTHER: 2})
        sizes = FetchSizes(max_bytes=4 << 20)
        async with RawFetcher(brokers.session(), FetchOptions()) as fetcher:
            await fetcher.poll({ONE: 0, OTHER: 0}, max_wait_seconds=1, sizes=sizes)
            brokers.leaders = {ONE: 3, OTHER: 3}
            await fetcher.poll({ONE: 1, OTHER: 1}, max_wait_seconds=1, sizes=sizes)
        assert [asked.max_bytes for asked in brokers.asked] == [2 << 20, 2 << 20, 4 << 20]

    run_in_virtual_time(run())
