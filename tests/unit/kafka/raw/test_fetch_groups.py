"""Which partitions are asked for together."""

import pytest

from twinlog.kafka.clients import FetchOptions
from twinlog.kafka.protocol.connection import request_timeout_ms
from twinlog.kafka.raw import DataClientPool, FetchedPartition, FetchFailure, FetchSizes, RawFetcher
from twinlog.kafka.raw.fetch.fetcher import _BRIEF_WAIT_MS, _FEW_PARTITIONS, _REQUESTS_PER_BROKER
from twinlog.model import TopicPartition
from twinlog.testing.simulated_source import SimulatedBrokers
from twinlog.testing.virtual_time import run_in_virtual_time


def partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in range(count)]


def fetcher_with(busy: list[TopicPartition], *, max_wait_ms: int = 5000) -> RawFetcher:
    fetcher = RawFetcher(DataClientPool("A", {}, timeout_seconds=30), FetchOptions(max_wait_ms=max_wait_ms))
    for partition in busy:
        fetcher.answers.standing(partition).is_busy = True
    return fetcher


async def test_the_answers_of_busy_partitions_do_not_name_a_thousand_quiet_ones() -> None:
    everything = partitions(1000)
    busy, quiet = fetcher_with(everything[3:5]).grouped(1, everything)
    assert busy == everything[3:5]
    assert sorted([*busy, *quiet]) == everything


def test_a_batch_that_is_too_large_for_any_answer_faults_its_partition_and_no_other() -> None:
    everything = partitions(50)
    bad = {everything[7], everything[30]}

    async def run() -> None:
        brokers = SimulatedBrokers(dict.fromkeys(everything, 1), too_large=bad)
        positions = dict.fromkeys(everything, 0)
        answers: dict[TopicPartition, FetchedPartition | FetchFailure] = {}
        async with RawFetcher(brokers.session(), FetchOptions()) as fetcher:
            while len(answers) < len(everything):
                answers |= await fetcher.poll(positions, max_wait_seconds=1.0)
            brokers.asked.clear()
            for _ in range(5):
                await fetcher.poll(positions, max_wait_seconds=1.0)
        failed = [answer for answer in answers.values() if isinstance(answer, FetchFailure)]
        assert {failure.partition for failure in failed} == bad
        assert {failure.error.reason for failure in failed} == {"ANSWER_TOO_LARGE"}
        assert not any(failure.error.retriable for failure in failed)
        asked = [set(one.positions) for one in brokers.asked]
        assert all(len(one) == 1 for one in asked if one & bad), "a known one disturbs nobody any more"
        assert len(max(asked, key=len)) > 40, "the others are asked together again"

    run_in_virtual_time(run())


async def test_few_partitions_all_busy_ones_and_all_quiet_ones_share_a_request() -> None:
    few, many = partitions(_FEW_PARTITIONS), partitions(1000)
    assert fetcher_with(few[:1]).grouped(1, few) == [few]
    assert fetcher_with(many).grouped(1, many) == [many]
    assert fetcher_with([]).grouped(1, many) == [many]


async def test_only_a_request_whose_end_nobody_waits_for_waits_long_itself() -> None:
    few = partitions(3)
    fetcher = fetcher_with([])
    assert fetcher.wait_ms(few, others=0) == _BRIEF_WAIT_MS
    for partition in few:
        fetcher.answers.standing(partition).has_answered = True
    waits = [fetcher.wait_ms(few, others=others) for others in range(_REQUESTS_PER_BROKER)]
    assert waits == [*[FetchOptions().max_wait_ms] * (_REQUESTS_PER_BROKER - 1), _BRIEF_WAIT_MS]


@pytest.mark.parametrize(("wanted", "waits"), [(100, 100), (7_000, 7_000), (15_000, 7_500), (600_000, 7_500)])
async def test_no_long_poll_outlasts_the_time_out_of_its_request(wanted: int, waits: int) -> None:
    few = partitions(1)
    fetcher = fetcher_with(few, max_wait_ms=wanted)
    fetcher.answers.standing(few[0]).has_answered = True
    assert fetcher.wait_ms(few, others=0) == waits < request_timeout_ms(30)


async def test_no_more_requests_than_a_broker_may_have() -> None:
    many = partitions(1000)
    fetcher = fetcher_with(many[:1])
    fetcher.requests_in_flight[1] = _REQUESTS_PER_BROKER - 1
    assert fetcher.grouped(1, many) == [many]


def test_what_all_brokers_may_bring_together_does_not_grow_with_their_number() -> None:
    async def run() -> None:
        brokers = SimulatedBrokers({TopicPartition("t", number): number for number in range(1, 17)})
        async with RawFetcher(brokers.session(), FetchOptions()) as fetcher:
            positions = dict.fromkeys(brokers.leaders, 0)
            await fetcher.poll(positions, max_wait_seconds=1, sizes=FetchSizes(max_bytes=4 << 20))
        asked = {one.node: one.max_bytes for one in reversed(brokers.asked)}
        assert len(asked) == 16
        assert sum(asked.values()) == 4 << 20

    run_in_virtual_time(run())


def test_one_broker_alone_may_bring_all() -> None:
    async def run() -> None:
        brokers = SimulatedBrokers({TopicPartition("t", 0): 1})
        async with RawFetcher(brokers.session(), FetchOptions()) as fetcher:
            await fetcher.poll(
                {TopicPartition("t", 0): 0}, max_wait_seconds=1, sizes=FetchSizes(max_bytes=4 << 20)
            )
        assert brokers.asked[0].max_bytes == 4 << 20

    run_in_virtual_time(run())
