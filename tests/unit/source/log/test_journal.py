"""Commands of operators are on the log before they take effect; one that failed never takes effect."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.errors import TIMEOUT, from_reason
from twinlog.kafka.ports import NewTopic
from twinlog.model import Flow
from twinlog.testing.fakes.clock import FakeClock
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog_source.log.facts import PauseFact, ThrottleFact
from twinlog_source.log.journal import Journal
from twinlog_source.log.positions import PositionsLog

TOPIC = "mm2-offsets.A.internal"
FLOW_PAUSED = ("pause", None, None)
BY_ROOT = PauseFact(topic=None, partition=None, by="root", at_ms=1)
BY_JOE = PauseFact(topic=None, partition=None, by="joe", at_ms=2)


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
            retractions=positions.retractions,
            partition_count=1,
        )
        yield Target(cluster, journal, positions)


async def test_a_pause_that_failed_has_no_effect_when_its_record_reaches_the_log_later(
    target: Target,
) -> None:
    target.lose_the_answer()
    with pytest.raises(TransientKafkaError):
        await target.command(BY_ROOT)
    assert await target.as_read_again() == BY_ROOT
    await target.positions.refresh()
    assert target.pause is None
    await target.journal.retract_given_up(target.positions.control)
    assert await target.as_read_again() is None
    assert not target.journal.retractions.due


async def test_a_resume_that_failed_leaves_the_pause_in_force(target: Target) -> None:
    await target.command(BY_ROOT)
    target.lose_the_answer()
    with pytest.raises(TransientKafkaError):
        await target.command(None)
    await target.positions.refresh()
    assert target.pause == BY_ROOT
    await target.journal.retract_given_up(target.positions.control)
    assert await target.as_read_again() == BY_ROOT


async def test_a_command_after_one_that_failed_is_what_counts(target: Target) -> None:
    await target.command(BY_ROOT)
    target.lose_the_answer()
    with pytest.raises(TransientKafkaError):
        await target.command(None)
    await target.command(BY_JOE)
    await target.positions.refresh()
    assert target.pause == BY_JOE
    await target.command(None)
    await target.positions.refresh()
    await target.journal.retract_given_up(target.positions.control)
    assert target.pause is None
    assert await target.as_read_again() is None


async def test_a_command_whose_caller_is_gone_is_given_up(target: Target) -> None:
    hangs = asyncio.Event()

    async def hang(_call: Call) -> None:
        hangs.set()
        await asyncio.Event().wait()

    undo = target.cluster.intercept("append", hang, after=True)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(target.command(BY_ROOT), name="a call whose client hangs up")
        await hangs.wait()
        asked.cancel()
    undo()
    await target.positions.refresh()
    assert target.pause is None
    await target.journal.retract_given_up(target.positions.control)
    assert await target.as_read_again() is None


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
