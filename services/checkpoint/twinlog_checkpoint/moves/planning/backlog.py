"""The records on the cluster that groups leave that are not copied yet.

Offsets decide first: the ends of both logs, the position that the source service reports, and the newest
offset sync. Only if they do not decide are logs read, several at a time and within a budget; partitions that
the budget does not reach are counted by the next call.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from twinlog.errors import KafkaError, WireFormatError
from twinlog.kafka.outage import WAITS_FOR_BROKERS
from twinlog.model import TopicPartition
from twinlog_checkpoint.groups.directory import CopyIdentity
from twinlog_checkpoint.moves.ends import written_ends
from twinlog_checkpoint.moves.planning.decision import CopyReport, CopyStates
from twinlog_checkpoint.moves.routes.route import CopiedPartition, Route
from twinlog_checkpoint.moves.topic_backlog import TopicBacklog
from twinlog_checkpoint.side_by_side import each_at_once
from twinlog_checkpoint.translation.aligner import Aligner
from twinlog_checkpoint.translation.log_sides import BudgetSpent, ByteBudget, ComparedPartition
from twinlog_checkpoint.translation.translation import LogBounds

LOOK_BYTES = 256 << 20
"""The most bytes that one measurement reads."""
LOGS_AT_ONCE = 16
_LEFT_RULES = "no flow copies it any more: the rules have changed, or its topic is gone; run it again"
_LOST_TAIL = "has lost records that were copied: `twinlog positions set` copies them again"
_WITH_ECHOES = "records that came from there count, too"
_LOST = "the logs do not show how far the copy has come"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A copied partition, as the offsets of both sides describe it."""

    entry: CopiedPartition
    here: LogBounds
    there: LogBounds | KafkaError | None
    stop: int
    """Records before this offset have to be copied. Past `here.end` they lie behind an open transaction."""
    copied_to: int | None
    """Everything before this offset is copied or recorded as a gap; known without reading a log."""
    position: int | None
    """The position that the source service reports. It may belong to an earlier topic of this name."""
    cause: str
    waits_for_broker: bool
    held_by: str = ""
    """The open transaction that keeps records before `stop` from being read."""


@dataclass(slots=True, kw_only=True)
class BacklogMeter:
    """Measures the backlog of one route. It reads each part of a log only once."""

    route: Route
    copy_states: CopyStates
    brokers_away: bool = False
    """Some brokers of one of the clusters do not answer."""
    look_bytes: int = LOOK_BYTES
    _copied: dict[TopicPartition, int] = field(default_factory=dict)
    """For each partition, the offset up to which it is known to be copied."""
    _ends: dict[TopicPartition, int] = field(default_factory=dict)
    """Where each copy ended at the last measurement: one that is shorter since has lost what was known."""

    async def measure(self, until: Mapping[TopicPartition, int | None] | None = None) -> list[TopicBacklog]:
        """Return the backlog of every copied partition; with `until`, only of records before these offsets,
        None = the present end. Raises KafkaError."""
        found: dict[TopicPartition, TopicBacklog] = {}
        unread: list[_Place] = []
        for place in await self._places(until, found):
            known = self._by_offsets(place)
            if known is None:
                unread.append(place)
            else:
                found[place.entry.here] = known
        budget = ByteBudget(self.look_bytes)

        async def read(place: _Place) -> None:
            found[place.entry.here] = await self._by_logs(place, budget)

        await each_at_once(unread, read, most=LOGS_AT_ONCE, name="backlog")
        for partition, entry in found.items():
            if entry.copied_to is not None:
                self._copied[partition] = max(entry.copied_to, self._copied.get(partition, 0))
        return [found[partition] for partition in sorted(found)]

    async def _places(
        self, until: Mapping[TopicPartition, int | None] | None, found: dict[TopicPartition, TopicBacklog]
    ) -> list[_Place]:
        """Return the partitions whose logs can be looked up; the reason for the others goes into `found`."""
        # Read the source's progress before the ends of the logs, so that it cannot be ahead of them.
        away = self.route.away
        report = CopyReport() if away is None else await self.copy_states.of(away.flow, with_losses=True)
        written = await self.route.written()
        written = [entry for entry in written if until is None or entry.here in until]
        sources = {entry.here for entry in written}
        for partition in (until or {}).keys() - sources:
            found[partition] = TopicBacklog(
                partition=partition, end_offset=None, records_not_copied=None, message=_LEFT_RULES
            )
        # What writers append between the two answers must not look like records behind an open transaction.
        stops: Mapping[TopicPartition, int | KafkaError | None]
        stops = await written_ends(self.route.here, sources) if until is None else until
        here = await self.route.here.bounds(sources)
        there = await self.route.there.bounds({entry.there for entry in written})
        for partition, bounds in here.items():
            if isinstance(bounds, KafkaError):
                found[partition] = TopicBacklog(
                    partition=partition,
                    end_offset=None,
                    records_not_copied=None,
                    message=str(bounds),
                    waits_for_broker=bounds.retriable,
                )
        found |= _known_losses(written, here, stops, report, "" if away is None else str(away.flow))
        written = [entry for entry in written if entry.here not in found]
        lost = await self._lost_tails(written, there, report)
        places = list(self._placed(written, here, there, stops, report, lost))
        held = {place.entry.here for place in places if place.stop > place.here.end}
        words = await self._open_transactions(held)
        return [replace(place, held_by=words.get(place.entry.here, "")) for place in places]

    async def _lost_tails(
        self,
        written: Collection[CopiedPartition],
        there: Mapping[TopicPartition, LogBounds | KafkaError],
        report: CopyReport,
    ) -> Collection[TopicPartition]:
        """The copies that end before what was written to them, by the offset syncs or the source service,
        which notices it later: they lost their tail, and no position tells. An empty one may have been
        created again, and only the service says what it has written to this one. Raises KafkaError."""
        doubted: dict[TopicPartition, int] = {}
        for entry in written:
            newest, copy = None if entry.pairs is None else entry.pairs.newest(), there.get(entry.there)
            if not isinstance(copy, LogBounds):
                continue
            state = report.partitions.get(entry.here)
            reached = (state and state.target_end) or 0
            if newest is not None and copy.start < copy.end:
                reached = max(reached, newest.downstream + 1)
            if copy.end < reached:
                doubted[entry.there] = reached
        # A record may be told of before the marker that makes it readable.
        ends = await written_ends(self.route.there, doubted)
        return {copy for copy, end in ends.items() if isinstance(end, int) and end < doubted[copy]}

    async def _open_transactions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """Describe the open transactions of these partitions as far as their leaders tell."""
        words = dict.fromkeys(partitions, "a transaction is open before them")
        try:
            found = await self.route.here.open_transactions(partitions) if partitions else {}
        except KafkaError:
            return words
        for partition, transactions in found.items():
            if not isinstance(transactions, KafkaError) and transactions:
                words[partition] = str(min(transactions, key=lambda each: each.first_offset))
        return words

    def _placed(
        self,
        written: Iterable[CopiedPartition],
        here: Mapping[TopicPartition, LogBounds | KafkaError],
        there: Mapping[TopicPartition, LogBounds | KafkaError],
        stops: Mapping[TopicPartition, int | KafkaError | None],
        report: CopyReport,
        lost: Collection[TopicPartition],
    ) -> Iterable[_Place]:
        for entry in written:
            bounds, copy = here.get(entry.here), there.get(entry.there)
            if not isinstance(copy, KafkaError):
                end = 0 if copy is None else copy.end
                if end < self._ends.get(entry.there, 0):
                    self._copied.pop(entry.here, None)
                self._ends[entry.there] = end
            if bounds is None or isinstance(bounds, KafkaError):
                continue
            stop = stops.get(entry.here)
            state = report.partitions.get(entry.here)
            position = None if state is None else state.position
            is_lost = entry.there in lost
            cause = f"{entry.there} {_LOST_TAIL}" if is_lost else report.cause(entry.here)
            if position is not None and (is_lost or position > bounds.end):
                position = None
            copied_to = _copied_to(entry, bounds, copy, position)
            if copied_to is not None and copied_to < bounds.start:
                if position is not None:  # An offset sync alone may be far behind the copy.
                    gone = f"the offsets from {copied_to} to {bounds.start}, which were not copied"
                    cause = f"RETENTION: {self.route.from_alias} no longer has {gone}; {cause}"
                copied_to = bounds.start
            if position is not None and position < bounds.start:
                position = None
            yield _Place(
                entry=entry,
                here=bounds,
                there=copy,
                stop=stop if isinstance(stop, int) else bounds.end,
                copied_to=copied_to,
                position=position,
                cause=f"{cause}; {_WITH_ECHOES}" if entry.is_both_ways else cause,
                waits_for_broker=(isinstance(copy, KafkaError) and copy.retriable)
                or (self.brokers_away and state is not None and state.reason in WAITS_FOR_BROKERS),
            )

    def _by_offsets(self, place: _Place) -> TopicBacklog | None:
        """Return the backlog if offsets alone show that it is empty."""
        if place.here.start >= place.stop:
            return _told(place, missing=0, copied_to=place.stop)
        seen = self._copied.get(place.entry.here, 0)
        if place.stop <= seen <= place.here.end:
            return _told(place, missing=0, copied_to=seen)
        if place.copied_to is not None and place.copied_to >= place.stop:
            return _told(place, missing=0, copied_to=place.copied_to)
        return None

    async def _by_logs(self, place: _Place, budget: ByteBudget) -> TopicBacklog:
        """Count the backlog by reading the logs. What cannot be counted has a reason."""
        side = ComparedPartition(
            log=self.route.here.log, partition=place.entry.here, bounds=place.here, budget=budget
        )
        copied_to = place.copied_to
        try:
            if copied_to is None or place.position is None:
                copied_to = await self._end_of_copy(place, side)
            if copied_to is None:
                return _told(place, missing=None, message=f"{_LOST}; {place.cause}")
            missing = await side.count(copied_to, min(place.stop, place.here.end))
            if place.stop > place.here.end:
                at_most = missing + place.stop - place.here.end
                return _told(place, missing=None, copied_to=copied_to, message=place.held_by, at_most=at_most)
            if not missing:
                copied_to = max(copied_to, place.stop)
            return _told(place, missing=missing, copied_to=copied_to)
        except BudgetSpent:
            at_most = place.stop - max(place.here.start, copied_to or 0)
            return _told(
                place,
                missing=None,
                copied_to=copied_to,
                message=f"counting; {place.cause}",
                at_most=at_most,
                counting=True,
            )
        except (KafkaError, WireFormatError) as error:
            return _told(place, missing=None, copied_to=copied_to, message=str(error))

    async def _end_of_copy(self, place: _Place, side: ComparedPartition) -> int | None:
        """Return the source offset after the last copied record; None when nothing shows it. Raises
        BudgetSpent, KafkaError or WireFormatError."""
        pairs = place.entry.pairs
        if isinstance(place.there, KafkaError):
            if place.copied_to is None:
                raise place.there
            return place.copied_to
        if pairs is None or pairs.newest() is None or place.there is None:
            # Nothing is known to be copied, so every visible record is missing.
            return place.here.start if place.copied_to is None else place.copied_to
        readable = min(place.stop, place.here.end)
        if place.copied_to is not None and not await side.count(place.copied_to, readable):
            # Behind the newest offset sync there are only markers.
            return place.copied_to
        other = ComparedPartition(
            log=self.route.there.log, partition=place.entry.there, bounds=place.there, budget=side.budget
        )
        last = await Aligner(here=side, there=other, pairs=pairs).copied_end()
        if last is not None:
            return max(last.upstream + 1, place.copied_to or 0, place.here.start)
        if place.copied_to is not None:
            return place.copied_to
        # The copy lost the records to compare with. The records from the source service's position on are
        # missing.
        return None if place.entry.identity is CopyIdentity.UNKNOWN else place.position


def _known_losses(
    written: Iterable[CopiedPartition],
    here: Mapping[TopicPartition, LogBounds | KafkaError],
    stops: Mapping[TopicPartition, int | KafkaError | None],
    report: CopyReport,
    flow: str,
) -> dict[TopicPartition, TopicBacklog]:
    """The copies that lost records which this cluster still holds, as the ledger of gaps says: the source
    service continues behind them, so no position tells."""
    found: dict[TopicPartition, TopicBacklog] = {}
    for entry in written:
        bounds, stop = here.get(entry.here), stops.get(entry.here)
        if not isinstance(bounds, LogBounds):
            continue
        stop = stop if isinstance(stop, int) else bounds.end
        for lost in report.lost.get(entry.here, ()):
            begin = max(lost.begin, bounds.start)
            if entry.here not in found and begin < min(lost.end, stop):
                scope = f"{shlex.quote(flow)} --topic {entry.here.topic} --partition {entry.here.partition}"
                found[entry.here] = TopicBacklog(
                    partition=entry.here,
                    end_offset=bounds.end,
                    records_not_copied=None,
                    message=f"{lost.reason}: {entry.there} lost copied records. `twinlog positions set"
                    f" {scope} --to {begin}` copies them again; then, or to do without them,"
                    f" `twinlog gaps ack {scope}`",
                    at_most=stop - begin,
                )
    return found


def _copied_to(
    entry: CopiedPartition, here: LogBounds, there: LogBounds | KafkaError | None, position: int | None
) -> int | None:
    """Return the offset that offsets alone prove to be copied. They prove it only if every recorded offset
    belongs to one of these two logs."""
    if entry.identity is not CopyIdentity.ORIGINAL:
        return None
    newest = None if entry.pairs is None else entry.pairs.newest()
    proven = None
    if newest is not None and isinstance(there, LogBounds) and newest.upstream < here.end:
        proven = newest.upstream + 1 if newest.downstream < there.end else None
    return max((each for each in (position, proven) if each is not None), default=None)


def _told(
    place: _Place,
    *,
    missing: int | None,
    copied_to: int | None = None,
    message: str | None = None,
    at_most: int | None = None,
    counting: bool = False,
) -> TopicBacklog:
    if message is None:
        message = place.cause if missing else ""
    return TopicBacklog(
        partition=place.entry.here,
        end_offset=place.here.end,
        records_not_copied=missing,
        copied_to=copied_to,
        message=message,
        counting=counting,
        at_most=missing if at_most is None else at_most,
        waits_for_broker=place.waits_for_broker,
    )
