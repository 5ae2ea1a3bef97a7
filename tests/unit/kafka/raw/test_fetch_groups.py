"""Which partitions are asked for together."""

from collections.abc import Collection
from typing import Any

import pytest

from twinlog.kafka.clients import FetchOptions
from twinlog.kafka.errors import ANSWER_TOO_LARGE, from_reason
from twinlog.kafka.protocol.connection import request_timeout_ms
from twinlog.kafka.raw import DataClientPool, FetchedPartition, FetchFailure, FetchSizes, RawFetcher
from twinlog.kafka.raw.fetch.fetcher import _BRIEF_WAIT_MS, _FEW_PARTITIONS, _REQUESTS_PER_BROKER
from twinlog.kafka.raw.fetch.wire import FetchResponse
from twinlog.model import TopicPartition
from unit.kafka.source_rig import source_rig


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


class Cautious(DataClientPool):
    """Takes no answers that name some partitions, as if those had batches that are too large."""

    too_large: Collection[TopicPartition] = ()

    async def send(self, node_id: int, request: Any, doing: str) -> Any:
        answer = await super().send(node_id, request, doing)
        if isinstance(answer, FetchResponse) and any(
            each.partition in self.too_large for each in answer.answers
        ):
            raise from_reason(ANSWER_TOO_LARGE, doing, alias=self.alias)
        return answer


async def test_a_batch_that_is_too_large_for_any_answer_faults_its_partition_and_no_other() -> None:
    everything = partitions(50)
    bad = {everything[7], everything[30]}
    async with source_rig(dict.fromkeys(everything, 1)) as source:
        session = Cautious("A", source.session.options, timeout_seconds=30)
        session.too_large = bad
        positions = dict.fromkeys(everything, 0)
        answers: dict[TopicPartition, FetchedPartition | FetchFailure] = {}
        async with RawFetcher(session, FetchOptions()) as fetcher:
            while len(answers) < len(everything):
                answers |= await fetcher.poll(positions, max_wait_seconds=1.0)
            source.asked.clear()
            for _ in range(5):
                await fetcher.poll(positions, max_wait_seconds=1.0)
        await session.close()
        failed = [answer for answer in answers.values() if isinstance(answer, FetchFailure)]
        assert {failure.partition for failure in failed} == bad
        assert {failure.error.reason for failure in failed} == {"ANSWER_TOO_LARGE"}
        assert not any(failure.error.retriable for failure in failed)
        asked = [set(one.positions) for one in source.asked]
        assert all(len(one) == 1 for one in asked if one & bad), "a known one disturbs nobody any more"
        assert len(max(asked, key=len)) > 40, "the others are asked together again"


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


async def test_what_all_brokers_may_bring_together_does_not_grow_with_their_number() -> None:
    leaders = {each: 1 + each.partition for each in partitions(16)}
    async with source_rig(leaders) as source, RawFetcher(source.session, FetchOptions()) as fetcher:
        await fetcher.poll(dict.fromkeys(leaders, 0), max_wait_seconds=1, sizes=FetchSizes(max_bytes=4 << 20))
        asked = {one.node: one.max_bytes for one in reversed(source.asked)}
        assert len(asked) == 16
        assert sum(asked.values()) == 4 << 20


async def test_one_broker_alone_may_bring_all() -> None:
    (one,) = partitions(1)
    async with source_rig({one: 1}) as source, RawFetcher(source.session, FetchOptions()) as fetcher:
        await fetcher.poll({one: 0}, max_wait_seconds=1, sizes=FetchSizes(max_bytes=4 << 20))
        assert source.asked[0].max_bytes == 4 << 20
