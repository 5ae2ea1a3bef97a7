"""How far two logs of one origin are equal: found by halves, from look to look, while they grow."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.batches import EndMarker
from twinlog.errors import KafkaError
from twinlog.kafka.ports import ConfigChange, OffsetSpec
from twinlog.model import Record, TopicPartition
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog_source.partitions.copy_mode import CommonLog
from twinlog_source.topics.common_search import CommonLogs, CommonSearch, Logs, SearchStopped, Suspect
from unit.source.flow_rig import P
from unit.source.topics.copy_modes_rig import COPY, write


async def suspect_of(source: FakeCluster, target: FakeCluster) -> Suspect:
    bounds = []
    for cluster, partition in ((source, P), (target, COPY)):
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST):
            found = (await cluster.list_offsets(spec, [partition]))[partition]
            assert isinstance(found, int)
            bounds.append(found)
    return Suspect(
        source=P,
        target=COPY,
        source_start=bounds[0],
        source_end=bounds[1],
        target_start=bounds[2],
        target_end=bounds[3],
        readable_end=bounds[3],
    )


async def common(source: FakeCluster, target: FakeCluster) -> CommonLog | KafkaError | None:
    logs = CommonLogs(source=source, target=target, read_committed=True, clock=FakeClock())
    return (await logs.find([await suspect_of(source, target)])).get(P)


async def common_in_steps(source: FakeCluster, target: FakeCluster) -> CommonLog | None:
    """As `common`, with looks that end after one read or two."""
    comparison = CommonSearch(await suspect_of(source, target))
    async with source.reader(read_committed=True) as here, target.reader(read_committed=True) as there:
        turns = cycle((True, False))
        logs = Logs(here, there, lambda: next(turns))
        for _ in range(100):
            with suppress(SearchStopped):
                return await comparison.common(logs)
    raise AssertionError("it makes no progress")


class SlowClock(FakeClock):
    """Time passes between any two looks at it."""

    def monotonic(self) -> float:
        self.advance(0.8)
        return super().monotonic()


def clusters() -> tuple[FakeCluster, FakeCluster]:
    source, target = (FakeCluster(alias, clock=FakeClock()) for alias in "AB")
    source.add_topic(P.topic)
    target.add_topic(COPY.topic)
    return source, target


@given(
    shared=st.integers(0, 40),
    more=st.integers(0, 10),
    others=st.integers(0, 10),
    trimmed=st.integers(0, 20),
    trimmed_there=st.integers(0, 20),
)
async def test_the_common_part_of_two_logs_of_one_origin_is_found_exactly(
    shared: int, more: int, others: int, trimmed: int, trimmed_there: int
) -> None:
    source, target = clusters()
    await write(source, P, [*range(shared), *range(1_000, 1_000 + more)])
    await write(target, COPY, [*range(shared), *range(2_000, 2_000 + others)])
    await source.delete_records({P: min(trimmed, shared + more)})
    await target.delete_records({COPY: min(trimmed_there, shared + others)})
    begin = max(min(trimmed, shared + more), min(trimmed_there, shared + others))
    expected = CommonLog(begin, shared) if begin < shared else None
    assert await common(source, target) == expected
    if begin < shared + others and begin < shared + more:
        assert await common_in_steps(source, target) == expected


async def test_a_comparison_that_takes_long_goes_on_with_the_next_look() -> None:
    """The driver of the flow waits for each look with all its other work."""
    source, target = clusters()
    await write(source, P, list(range(100)))
    await write(target, COPY, list(range(90)))
    logs = CommonLogs(source=source, target=target, read_committed=True, clock=SlowClock())
    suspect = await suspect_of(source, target)
    looks = 0
    while isinstance(found := (await logs.find([suspect]))[P], KafkaError):
        assert found.reason == "COMPARING"
        looks += 1
        assert looks < 100
    assert (found, looks > 3) == (CommonLog(0, 90), True)


async def looked_at(logs: CommonLogs, write_more: Callable[[int], Awaitable[None]]) -> CommonLog | None:
    """The result, with something that is written after each look."""
    for look in range(200):
        source, target = logs.source, logs.target
        assert isinstance(source, FakeCluster)
        assert isinstance(target, FakeCluster)
        found = (await logs.find([await suspect_of(source, target)]))[P]
        if not isinstance(found, KafkaError):
            return found
        await write_more(look)
    raise AssertionError("it never ends")


async def test_a_comparison_ends_while_an_application_writes_to_the_target() -> None:
    source, target = clusters()
    await write(source, P, list(range(100)))
    await write(target, COPY, [*range(60), *range(1_000, 1_010)])
    logs = CommonLogs(source=source, target=target, read_committed=True, clock=SlowClock())
    found = await looked_at(logs, lambda look: write(target, COPY, [2_000 + look]))
    assert found == CommonLog(0, 60)


async def test_what_both_logs_got_during_the_comparison_is_common() -> None:
    """Another deployment still copies from the target to the source."""
    source, target = clusters()
    await write(source, P, list(range(50)))
    await write(target, COPY, list(range(80)))
    logs = CommonLogs(source=source, target=target, read_committed=True, clock=SlowClock())

    async def catch_up(look: int) -> None:
        await write(source, P, list(range(50, 90)) if look == 0 else [])

    assert await looked_at(logs, catch_up) == CommonLog(0, 80)


async def test_what_both_logs_got_is_common_also_where_the_source_ended_in_a_hole() -> None:
    source, target = clusters()
    end = 0
    for cluster, partition, pairs in ((source, P, 25), (target, COPY, 40)):
        await write_transactions(cluster, partition, range(pairs))
        end = pairs * 2
    logs = CommonLogs(source=source, target=target, read_committed=True, clock=SlowClock())

    async def catch_up(look: int) -> None:
        await write_transactions(source, P, range(25, 45) if look == 0 else range(0))

    assert await looked_at(logs, catch_up) == CommonLog(0, end)


async def write_transactions(cluster: FakeCluster, partition: TopicPartition, values: range) -> None:
    """Each takes two offsets: its record, and the marker at its end."""
    for value in values:
        record = Record(offset=-1, timestamp_ms=1_000 + value, key=b"k", value=b"%d" % value, headers=())
        cluster.append_transaction(partition, [record], EndMarker.COMMIT)


async def test_a_comparison_begins_again_where_the_logs_are_others() -> None:
    source, target = clusters()
    await write(source, P, list(range(100)))
    await write(target, COPY, list(range(90)))
    logs = CommonLogs(source=source, target=target, read_committed=True, clock=SlowClock())
    suspect = await suspect_of(source, target)
    for _ in range(5):
        await logs.find([suspect])
    recreated = FakeCluster("A", clock=FakeClock())
    recreated.add_topic(P.topic)
    await write(recreated, P, list(range(500, 600)))
    logs.source = recreated
    suspect = replace(suspect, topic_ids=("another", ""))
    while isinstance(found := (await logs.find([suspect]))[P], KafkaError):
        pass
    assert found is None


async def test_a_log_that_retention_shortens_during_the_comparison_is_compared_again() -> None:
    """To take it for one with nothing in common would copy all of it again."""
    source, target = clusters()
    await write(source, P, list(range(100)))
    await write(target, COPY, list(range(90)))
    suspect = await suspect_of(source, target)
    await target.delete_records({COPY: 40})
    logs = CommonLogs(source=source, target=target, read_committed=True, clock=FakeClock())
    found = (await logs.find([suspect]))[P]
    assert isinstance(found, KafkaError)
    assert found.reason == "COMPARING"
    assert (await logs.find([await suspect_of(source, target)]))[P] == CommonLog(40, 90)


async def test_logs_that_differ_between_records_that_are_equal_are_not_of_one_origin() -> None:
    """The search by halves passes record 60; the comparison does not."""
    source, target = clusters()
    await write(source, P, [*range(60), 777, *range(61, 100)])
    await write(target, COPY, list(range(100)))
    assert await common(source, target) is None


@pytest.mark.parametrize("stamped", [P, COPY])
async def test_nothing_is_compared_where_a_broker_stamps_its_times(stamped: TopicPartition) -> None:
    source, target = clusters()
    await write(source, P, [1, 2, 3])
    await write(target, COPY, [1, 2, 3])
    cluster = source if stamped == P else target
    change = ConfigChange(name="message.timestamp.type", value="LogAppendTime")
    await cluster.alter_topic_configs({stamped.topic: [change]})
    assert await common(source, target) is None
