"""Copies that another flow writes as well: under policies that keep names, two sources may share a topic.

An offset of one source says nothing about the records of the other one in such a copy: a group that continues
there would skip records, or its two places would overwrite each other. So nothing is translated.

Each flow's configsync records on the target which topics it copies, before the first record is copied. What
other processes and files copy is known by that, too.

Translation where the copy has the source's offsets: the same number, bounded by what has been copied.

Invariant: an answer is never ahead of the copy. Whether a copy has the source's offsets is asked again after
its end was read: what lay below that end was written while it had them. A log that is shorter than the source
service knew before gives no place: brokers before 4.1 take batches by names, so one that was created again
under the same name may have other records at these offsets.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError, required
from twinlog.kafka.ports import KafkaCluster, OffsetSpec
from twinlog.kafka.whole_logs import records_to
from twinlog.model import Flow, TopicPartition
from twinlog.policy import ReplicationPolicy
from twinlog.policy.internal_topics import configsync_topic
from twinlog_checkpoint.translation.exact import AT_END, LogSide
from twinlog_checkpoint.translation.log_sides import log_ends
from twinlog_checkpoint.translation.translation import (
    LogBounds,
    SourcePosition,
    Translation,
    Translator,
    Verdict,
    at_start,
)


class Equal(NamedTuple):
    """What the source service reports of the offsets of a copy."""

    below: int | None = 0
    """The copy has the source's offsets below this one; None = all of it has."""
    end: int = 0
    """The log there had records up to this offset."""


EqualOffsets = Callable[[], Awaitable[Mapping[TopicPartition, Equal]]]
"""By source partition."""

_SAME = "the copy has the source's offsets"
_SHORTER = "it lost them, or was created again, and the source service has not seen it yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreservedTranslator:
    """Answers for copies with the source's offsets, and asks `otherwise` about the rest."""

    equal_offsets: EqualOffsets
    """Never raises: nothing is known while the source service does not answer."""
    there: LogSide
    """Where offsets are translated to."""
    original: Callable[[TopicPartition], TopicPartition | None]
    """The source partition of a position's partition; None when the flow does not copy it."""
    counterpart: Callable[[TopicPartition], TopicPartition]
    """The partition there; asked for those that have an original."""
    otherwise: Translator

    async def translate(self, positions: Collection[SourcePosition]) -> Mapping[SourcePosition, Translation]:
        reported = await self.equal_offsets() if positions else {}
        preserved = self._preserved(positions, reported)
        answers: dict[SourcePosition, Translation] = {}
        if preserved:
            targets = {self.counterpart(position.partition) for position in preserved}
            bounds = await self.there.bounds(targets)
            # What lies behind an open transaction of an application is there, too.
            ends = await log_ends(self.there.admin, self._shorter(preserved, bounds, reported))
            for position in self._preserved(preserved, await self.equal_offsets()):
                there = bounds.get(self.counterpart(position.partition))
                if (unread := self.there.unread(there)) is not None:
                    answers[position] = unread
                elif isinstance(there, LogBounds):
                    end = ends.get(self.counterpart(position.partition), there.end)
                    answers[position] = self._answer(position, there, reported, end)
        rest = [position for position in positions if position not in answers]
        return {**answers, **(await self.otherwise.translate(rest) if rest else {})}

    def _shorter(
        self,
        positions: Collection[SourcePosition],
        bounds: Mapping[TopicPartition, LogBounds | KafkaError],
        reported: Mapping[TopicPartition, Equal],
    ) -> set[TopicPartition]:
        """The partitions there whose stable end lies before what the source service knew."""
        had = {self.counterpart(each.partition): self._told(each, reported).end for each in positions}
        return {
            partition
            for partition, there in bounds.items()
            if isinstance(there, LogBounds) and there.end < had[partition]
        }

    def _answer(
        self, position: SourcePosition, there: LogBounds, reported: Mapping[TopicPartition, Equal], end: int
    ) -> Translation:
        had = self._told(position, reported).end
        if end >= had:
            return same_offset(position.next_offset, there)
        why = f"the log there ends at {end}, and had records up to {had}: {_SHORTER}"
        return Translation(verdict=Verdict.NOT_READY, downstream_offset=None, message=why)

    def _preserved(
        self, positions: Collection[SourcePosition], known: Mapping[TopicPartition, Equal]
    ) -> list[SourcePosition]:
        below = ((each, self._told(each, known).below) for each in positions)
        return [each for each, end in below if end is None or each.next_offset < end]

    def _told(self, position: SourcePosition, known: Mapping[TopicPartition, Equal]) -> Equal:
        source = self.original(position.partition)
        return Equal() if source is None else known.get(source, Equal())


def same_offset(offset: int, there: LogBounds) -> Translation:
    """The answer for an offset that is the same there.

    >>> same_offset(5, LogBounds(start=0, end=9)).downstream_offset
    5
    >>> same_offset(5, LogBounds(start=0, end=3)).verdict.value
    'UP_TO_DATE'
    """
    if offset > there.end:
        return Translation(verdict=Verdict.UP_TO_DATE, downstream_offset=there.end, message=AT_END)
    if offset < there.start:
        return at_start(there)
    return Translation(verdict=Verdict.PRESERVED, downstream_offset=offset, message=_SAME)


_REGISTRY = re.compile(r"mm2-configsync\.(.+)\.internal")


@dataclass(slots=True)
class _Registry:
    """What the flow of another source copies into the same target."""

    next_offset: int = 0
    by_topic: dict[str, str] = field(default_factory=dict)
    """Names of copies, by source topic. A topic that is gone, or its copy, stays: what is created under its
    name is copied before the registry says so."""
    gone: set[str] = field(default_factory=set)
    """Source topics of which there is nothing to copy now."""
    copies: frozenset[str] = frozenset()
    """Names of copies that are written."""
    source_id: str = ""
    """Id of the source cluster."""

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """What this version cannot read tells nothing."""
        match _parsed(key):
            case ["topic", str(topic)]:
                match _parsed(value):
                    case {"selected": True, "target_topic": str(copy), "target_partition_count": int(count)}:
                        self.by_topic[topic] = copy
                        (self.gone.discard if count > 0 else self.gone.add)(topic)
                    case {"deleted_at_ms": int(), "target_topic": str(copy)}:  # Its copy is gone, too.
                        self.by_topic[topic] = copy
                        self.gone.add(topic)
                    case _:
                        self.by_topic.pop(topic, None)
            case ["flow"]:
                match _parsed(value):
                    case {"source_cluster_id": str(source_id)}:
                        self.source_id = source_id


@dataclass(slots=True, kw_only=True)
class SharedCopies:
    """Those of one flow."""

    flow: Flow
    policy: ReplicationPolicy
    source: KafkaCluster
    target: KafkaCluster
    reads_own: bool = False
    """What the flow itself copies is asked for, too (`copies`)."""
    _registries: dict[str, _Registry] = field(default_factory=dict)
    """By alias of the source."""
    _asked_id: str = ""
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)

    def why(self, copy: str) -> str:
        """Why offsets on this topic of the target cannot be translated; empty when no other flow writes
        it."""
        own_id = self._source_id()
        for source, registry in sorted(self._registries.items()):
            is_same = source == self.flow.source or registry.source_id == own_id != ""
            if not is_same and copy in registry.copies:
                other = Flow(source, self.flow.target)
                return (
                    f"flow {other} copies into {copy} on {self.flow.target} as well, so offsets of"
                    f" {self.flow.source} have no place there: leave the topic out of one of the flows (if"
                    f" {other} is gone for good, delete {configsync_topic(source)} there)"
                )
        return ""

    def copies(self, source_topic: str, copy: str) -> bool:
        """Whether a flow from the same source, of this file or another, copies a topic into this copy."""
        own_id = self._source_id()
        return any(
            registry.by_topic.get(source_topic) == copy
            for source, registry in self._registries.items()
            if source == self.flow.source or registry.source_id == own_id != ""
        )

    async def look(self) -> None:
        """Read what has been recorded since the last look. Raises KafkaError."""
        if not self.policy.tracks_topic_sources:  # Otherwise the names of copies tell their source.
            async with self._looking:
                await self._look()

    async def _look(self) -> None:
        found = {
            match[1]: TopicPartition(topic, 0)
            for topic in await self.target.list_topics()
            if (match := _REGISTRY.fullmatch(topic)) is not None
        }
        if not found.keys() - (set() if self.reads_own else {self.flow.source}):
            self._registries = {}
            return
        ends = await self.target.list_offsets(OffsetSpec.LATEST, found.values())
        registries = {source: self._registries.get(source) or _Registry() for source in found}
        for source, partition in found.items():
            end = ends[partition]
            if isinstance(end, int):
                if end < registries[source].next_offset:  # Created again.
                    registries[source] = _Registry()
                await self._read(registries[source], partition, end)
            elif end.retriable and not registries[source].next_offset:
                raise end  # What is copied by the other flow is not known yet.
        self._registries = registries
        if not self._source_id():
            # While the source is away, its other names count as other sources.
            with suppress(TransientKafkaError):
                self._asked_id = await self.source.cluster_id()

    def _source_id(self) -> str:
        """The id of the flow's source; "" while it is not known. Also configsync has recorded it."""
        own = self._registries.get(self.flow.source)
        return ("" if own is None else own.source_id) or self._asked_id

    async def _read(self, registry: _Registry, partition: TopicPartition, end: int) -> None:
        if end == registry.next_offset:
            return
        try:
            start = required((await self.target.list_offsets(OffsetSpec.EARLIEST, [partition]))[partition])
            async with self.target.reader() as reader:
                async for record in records_to(reader, partition, max(start, registry.next_offset), end):
                    registry.take(record.key, record.value)
        except FatalKafkaError:
            return  # Without the right to read it, what the other flow copies is not known.
        copies = (copy for topic, copy in registry.by_topic.items() if topic not in registry.gone)
        registry.next_offset, registry.copies = end, frozenset(copies)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsharedTranslator:
    """Answers for copies that several flows write, and asks `otherwise` about the rest."""

    shared: SharedCopies
    copy_of: Callable[[TopicPartition], str]
    """The copy that an offset is of, or is translated to."""
    otherwise: Translator

    async def translate(self, positions: Collection[SourcePosition]) -> Mapping[SourcePosition, Translation]:
        if positions:
            await self.shared.look()
        copies = {self.copy_of(each.partition) for each in positions}
        why = {copy: self.shared.why(copy) for copy in copies}
        answers = {
            position: Translation(verdict=Verdict.SHARED_COPY, downstream_offset=None, message=reason)
            for position in positions
            if (reason := why[self.copy_of(position.partition)])
        }
        rest = [position for position in positions if position not in answers]
        return {**answers, **(await self.otherwise.translate(rest) if rest else {})}


def _parsed(data: bytes | None) -> object:
    try:
        return None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return None
