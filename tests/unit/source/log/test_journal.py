"""Commands of operators are on the log before they take effect."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.errors import TIMEOUT, from_reason
from twinlog.kafka.ports import NewTopic
from twinlog.model import Flow
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog_source.log.facts import PauseFact, ThrottleFact
from twinlog_source.log.journal import Journal
from twinlog_source.log.positions import PositionsLog

TOPIC = "mm2-offsets.A.internal"
FLOW_PAUSED = ("pause", None, None)
BY_ROOT = PauseFact(topic=None, partition=None, by="root", at_ms=1)


class Target:
    """The target's log with one process that writes and reads it."""

    def __init__(self, cluster: FakeCluster, journal: Journal, positions: PositionsLog) -> None:
        self.cluster, self.journal, self.positions = cluster, journal, positions

    def lose_the_answer(self) -> None:
        """The next record gets onto the log, and nobody is told: a broker that hung and came back."""

        def fail(_call: Call) -> None:
            undo()
            raise from_reason(TIMEOUT, "append", alias="B")

        undo = self.cluster.intercept("append", fail, after=True)

    async def command(self, fact: PauseFact | None) -> None:
        """As the operations do: what is on the log takes effect."""
        await self.journal.command(FLOW_PAUSED, fact)
        if fact is None:
            self.positions.control.pauses.pop((None, None), None)
        else:
            self.positions.control.pauses[None, None] = fact

    @property
    def pause(self) -> PauseFact | None:
        return self.positions.control.pauses.get((None, None))

    async def as_read_again(self) -> PauseFact | None:
        """What the next process finds."""
        async with self.cluster.reader() as reader:
            log = PositionsLog(
                list_offsets=self.cluster.list_offsets,
                reader=reader,
                topic=TOPIC,
                partition_count=1,
                source_alias="A",
            )
            await log.refresh()
            return log.control.pauses.get((None, None))


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    cluster = FakeCluster("B", clock=FakeClock())
    await cluster.create_topics([NewTopic(name=TOPIC, partition_count=1, replication_factor=1)])
    async with cluster.writer() as writer, cluster.reader() as reader:
        positions = PositionsLog(
            list_offsets=cluster.list_offsets, reader=reader, topic=TOPIC, partition_count=1, source_alias="A"
        )
        journal = Journal(
            flow=Flow("A", "B"),
            connector_name="MirrorSourceConnector",
            topic=TOPIC,
            writer=writer,
            clock=FakeClock(),
            partition_count=1,
        )
        yield Target(cluster, journal, positions)


async def test_what_the_log_shows_of_a_command_that_failed_is_in_force(target: Target) -> None:
    """Its answer was lost: every process sees the same."""
    target.lose_the_answer()
    with pytest.raises(TransientKafkaError):
        await target.command(BY_ROOT)
    assert target.pause is None
    await target.positions.refresh()
    assert target.pause == await target.as_read_again() == BY_ROOT


async def test_a_command_that_hangs_fails_in_time(target: Target) -> None:
    async def hang(_call: Call) -> None:
        await asyncio.Event().wait()

    target.cluster.intercept("append", hang)
    with pytest.raises(TransientKafkaError, match="no answer within"):
        await target.command(BY_ROOT)


async def test_a_limit_says_who_set_it_and_when_also_after_a_restart(target: Target) -> None:
    mark = ThrottleFact(topic="t", bytes_per_second=5, by="root", at_ms=7)
    await target.journal.command(("throttle", "t", None), mark)
    await target.positions.refresh()
    assert target.positions.control.throttles == {"t": mark}


async def test_a_refused_command_raises_the_brokers_reason(target: Target) -> None:
    def refuse(_call: Call) -> None:
        raise from_reason(TIMEOUT, "append to mm2-offsets.A.internal-0", alias="B")

    target.cluster.intercept("append", refuse)
    with pytest.raises(KafkaError, match="cluster B"):
        await target.command(BY_ROOT)
