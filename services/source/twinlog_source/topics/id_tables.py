"""The positions topics that name the producers of copies (docs/adr/0017): those on the source of a flow, and
those of flows of other files on its target.

A look reads what has come since; what could not be read is kept with the reason.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from twinlog.clock import Clock
from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError, TwinlogError, WireFormatError
from twinlog.kafka.deadline import pause
from twinlog.kafka.ports import KafkaCluster, LogReader, OffsetSpec, TopicDescription
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import TopicPartition
from twinlog.policy.internal_topics import source_of_offsets
from twinlog.service.feeds.replicated_topics import ReplicatedTopic
from twinlog_source.config import Partner, SourceFlow
from twinlog_source.log.facts import TopicFact
from twinlog_source.log.positions import PositionsLog
from twinlog_source.reasons import PartitionReason

log = structlog.get_logger(__name__)

ASK_SECONDS: Final = 1.0
"""From one look at the positions topics to the next. Each lists the topics of the source, whose batches can
have new producers with each fetch. One look answers all that was asked before it."""


@dataclass(slots=True)
class IdTable:
    """What the positions topic of a flow into the source says."""

    log: PositionsLog
    topic_id: str
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where it ended when it was last read."""
    failure: TwinlogError | None = None
    """Why it does not say everything."""
    successor: "IdTable | None" = None
    """The topic that has its name now, until its owner says that it has all that this one had."""

    def topic_of(self, copy: ReplicatedTopic) -> TopicFact | None:
        """The topic of which the flow's source topic is a copy."""
        topics = self.log.control.topics.values()
        if not copy.source_topic_id:
            # Brokers before 2.8: no copy there has an id.
            marks = (each for each in topics if not each.target_topic_id)
            return next((each for each in marks if each.topic == copy.target_topic), None)
        return next((each for each in topics if each.target_topic_id == copy.source_topic_id), None)


@dataclass(slots=True, kw_only=True)
class IdTables:
    flow: SourceFlow
    source: KafkaCluster
    reader: LogReader
    """Reads the source with read_uncommitted: facts are written without transactions, and a transaction of
    another slot must not hide them."""
    target: KafkaCluster
    target_reader: LogReader
    """Reads the target as `reader` the source."""
    cluster_id: Callable[[str], str | None]
    clock: Clock
    pace_seconds: float = ASK_SECONDS
    tables: dict[str, IdTable] = field(default_factory=dict)
    """Of flows into the source, by the name of the positions topic."""
    beside: dict[str, IdTable] = field(default_factory=dict)
    """The positions topics on the target of flows that are not of the file."""
    missing: set[str] = field(default_factory=set)
    """Positions topics of the file's flows into the source that do not exist yet."""
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _looks: int = 0
    """How many looks have begun."""
    _seen: int = 0
    """The last one that succeeded."""
    _next_look_at: float = 0.0

    @property
    def into_source(self) -> list[Partner]:
        return [each for each in self.flow.partners if each.flow.target == self.flow.flow.source]

    async def read(self, *, is_paced: bool = True) -> None:
        """Read what has come since, of each flow into the source that has a positions topic there; if it
        `is_paced`, once in `pace_seconds`. Raises KafkaError if the source does not answer;
        `range_of` raises for a topic that cannot be read."""
        asked_after = self._looks
        async with self._reading:
            if self._seen > asked_after:
                return  # A look that began after the question answers it.
            if is_paced:
                await pause(self._next_look_at - self.clock.monotonic())
                self._next_look_at = self.clock.monotonic() + self.pace_seconds
            self._looks += 1
            await self._look()
            self._seen = self._looks

    async def _look(self) -> None:
        expected = {each.positions_topic: each.flow.source for each in self.into_source}
        listed = {
            name: alias
            for name in await self.source.list_topics()
            if (alias := source_of_offsets(name)) is not None
        }
        aliases = listed | expected | {name: each.log.source_alias for name, each in self.tables.items()}
        self.missing.clear()
        there: list[IdTable] = []
        for name, described in (
            await self.source.describe_topics(sorted(aliases)) if aliases else {}
        ).items():
            table = self.tables.get(name)
            if isinstance(described, KafkaError):
                is_absent = described.reason == KafkaReason.TOPIC_UNKNOWN
                if table is not None or not is_absent:
                    table = table or self.tables.setdefault(name, IdTable(self._log(name, aliases[name]), ""))
                    self._fail(table, self.does_not_exist(name) if is_absent else described)
                    if is_absent and not self.may_be_back(table):
                        del self.tables[name]
                elif name in expected:
                    self.missing.add(name)
                continue
            if table is not None and table.topic_id not in ("", described.topic_id):
                failure = self.unknown(f"{name} was deleted and created again, and not written again")
                if (successor := await self._successor(table, described)) is not None:
                    table = self.tables[name] = successor
                elif self.may_be_back(self._fail(table, failure)):
                    continue
                else:
                    table = None
            if table is None:
                table = self.tables[name] = IdTable(self._log(name, aliases[name]), described.topic_id)
            table.topic_id, table.log.partition_count = described.topic_id, described.partition_count
            there.append(table)
        await self._follow(self.source, there)
        ids = {fact.source_cluster_id for each in there for fact in each.log.control.producers.values()}
        if ids - {self.cluster_id(self.flow.flow.target)}:
            await self._look_beside()

    async def _successor(self, table: IdTable, described: TopicDescription) -> IdTable | None:
        """The topic that has the name now, once its owner says that it has all that `table` had."""
        successor = table.successor
        if successor is None or successor.topic_id != described.topic_id:
            log = self._log(table.log.topic, table.log.source_alias)
            successor = table.successor = IdTable(log, described.topic_id)
        successor.log.partition_count = described.partition_count
        try:
            await successor.log.refresh()
        except (KafkaError, WireFormatError):
            return None  # The next look reads on.
        return successor if table.topic_id in successor.log.former_topics else None

    async def _look_beside(self) -> None:
        """The source has copies from elsewhere, which a flow of another file may also copy to the target."""
        own = self.flow.settings.offset_storage.topic
        known = {each.positions_topic for each in self.flow.partners if each not in self.into_source}
        listed = {
            name: alias
            for name in await self.target.list_topics()
            if (alias := source_of_offsets(name)) is not None and name not in (own, *known)
        }
        tables = {}
        for name, found in (await self.target.describe_topics(sorted(listed)) if listed else {}).items():
            if not isinstance(found, KafkaError):
                log = self._log(name, listed[name], beside=True)
                log.partition_count = found.partition_count
                before = self.beside.get(name)
                is_same = before is not None and before.topic_id == found.topic_id
                tables[name] = before if before is not None and is_same else IdTable(log, found.topic_id)
        self.beside = tables
        await self._follow(self.target, tables.values())

    async def _follow(self, cluster: KafkaCluster, tables: Collection[IdTable]) -> None:
        """Read those that have changed, by their ends."""
        places = {
            TopicPartition(each.log.topic, number): each
            for each in tables
            for number in range(each.log.partition_count)
        }
        ends = await cluster.list_offsets(OffsetSpec.LATEST, places) if places else {}
        for table in tables:
            now = {each: ends[each] for each, its in places.items() if its is table}
            if now == table.ends and table.failure is None:
                continue
            try:
                await table.log.refresh()
            except (KafkaError, WireFormatError) as error:
                self._fail(table, error)
            else:
                table.failure = None
                named = table.log.control.producers
                if strange := sum(each not in named for each in table.log.ids_by.values()):
                    words = f"has {strange} records about producers that its flow did not write"
                    self._fail(table, self.unknown(f"{table.log.topic} {words}"))
                table.ends = {each: end for each, end in now.items() if isinstance(end, int)}

    def _fail(self, table: IdTable, failure: TwinlogError) -> IdTable:
        was, table.failure = table.failure, failure
        if (was is None or was.reason != failure.reason) and not self.may_be_back(table):
            log.warning(
                "ids_not_read", flow=str(self.flow.flow), topic=table.log.topic, reason=failure.reason
            )
        return table

    def may_be_back(self, table: IdTable) -> bool:
        """Whether the flow of these ids copies from a cluster whose records the target has, too; or may,
        while not all of its ids are known."""
        to_target = (each.flow.source for each in self.flow.partners if each not in self.into_source)
        aliases = {self.flow.flow.target, *to_target}
        named = {each.source_cluster_id for each in table.log.control.producers.values()}
        if table.log.is_read and named:
            known = {self.cluster_id(each) for each in aliases}
            return None in known or not named.isdisjoint(known)
        if table.log.source_alias in aliases:
            return True
        # One of the file copies from elsewhere, and one that is gone told nothing. Of another file it may
        # have any name. Nobody waits for ever for the right to read what may be none of their business.
        is_of_file = any(each.positions_topic == table.log.topic for each in self.into_source)
        is_gone = table.failure is not None and table.failure.reason == PartitionReason.ORIGIN_UNKNOWN
        return not (is_of_file or is_gone or isinstance(table.failure, FatalKafkaError))

    def is_back(self, table: IdTable) -> bool:
        """Whether the flow of these ids copies from the target of this one."""
        target_id = self.cluster_id(self.flow.flow.target)
        return any(each.source_cluster_id == target_id for each in table.log.control.producers.values())

    def _log(self, name: str, alias: str, *, beside: bool = False) -> PositionsLog:
        return PositionsLog(
            list_offsets=(self.target if beside else self.source).list_offsets,
            reader=self.target_reader if beside else self.reader,
            topic=name,
            partition_count=0,
            source_alias=alias,
            clock=self.clock,
        )

    def does_not_exist(self, positions_topic: str) -> TransientKafkaError:
        return self.unknown(f"{positions_topic} does not exist on {self.flow.flow.source}")

    def unknown(self, words: str) -> TransientKafkaError:
        return TransientKafkaError(f"{self.flow.flow} waits: {words}", reason=PartitionReason.ORIGIN_UNKNOWN)
