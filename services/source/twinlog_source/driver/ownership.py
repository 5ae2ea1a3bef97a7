"""Which process copies a flow: the one that claimed it last.

An election (`twinlog.service.owner.lease`) chooses the process that may claim. This module makes sure that
only one process can write, so an error of the election costs a pause and never a record.

A new owner writes its claim, then fences every id of earlier owners, then reads the positions. A task of the
owner before initialises its ids, then that owner checks the newest claim, then it starts the task:

    new owner                  claim ────────▶ fence ────────▶ read positions
    task, case 1   initialise ids ─▶ start      ✗ fenced: it commits nothing more
    task, case 2                                    initialise ids ─▶ ✗ newer claim: no start

Invariant: of two owners at most one can commit from its start positions on. Tasks of the earlier owner that
initialised their ids before the fencing are fenced; those that do so later are not started.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from twinlog.clock import Clock
from twinlog.errors import FatalKafkaError, StateError
from twinlog.kafka.deadline import deadline
from twinlog.kafka.ports import TopicDescription
from twinlog.model import TopicPartition
from twinlog.service.owner.name import OwnerReason, are_twins, twin_deployment
from twinlog_source.config import SourceFlow
from twinlog_source.driver.stream.task_settings import IDS_PER_SLOT, every_transactional_id, ids_of_slot
from twinlog_source.log.facts import FENCED, MOST_SLOTS, PRESERVED, ClaimFact, OwnerFact
from twinlog_source.log.internal_topics import InternalTopics
from twinlog_source.log.journal import Journal
from twinlog_source.log.positions import PositionsLog
from twinlog_source.log.producers import Producers, foreign_positions, found_producers

RENEW_SECONDS = 20.0
STALE_OWNER_SECONDS = 60.0
"""An owner that has neither claimed nor signed for this long is gone."""
AT_REST_AFTER_SECONDS = 900.0
"""Writes of an owner that was killed or froze this long ago no longer arrive: brokers have closed its
connections (`connections.max.idle.ms` is ten minutes)."""

log = structlog.get_logger(__name__)

Fence = Callable[[Sequence[str], Mapping[TopicPartition, TopicPartition]], Awaitable[None]]
"""Initialises ids so that no earlier owner can commit any more, and ends their hanging transactions on the
positions topic and on copies (target partition -> source partition). Raises KafkaError."""


KnownProducers = Callable[[Sequence[str]], Awaitable[Mapping[int, str]]]
"""The transactional ids among these that the target knows, by the producer id of each. Raises KafkaError."""
SLOTS_AT_ONCE = 4
FIND_SECONDS = 5.0
"""The driver waits for it, with all its other work."""


@dataclass(slots=True, kw_only=True)
class Ownership:
    """All methods that write raise KafkaError."""

    flow: SourceFlow
    instance_id: str
    internal: InternalTopics
    positions: PositionsLog
    journal: Journal
    fence: Fence
    known_producers: KnownProducers
    producers: Producers
    clock: Clock
    _slots: int = 0
    """The most slots that any owner has used."""
    former_left_at_rest: bool = False
    """At take-over, no write of former owners to preserved copies was in flight."""
    is_outdated: bool = False
    """What this process remembers of the copies does not count: another one has signed since this one last
    took over in full, or the copies are gone together with their positions."""
    is_still_at_rest: bool = False
    """`former_left_at_rest`, and no slot was used since: the next owner finds the copies as this one did."""
    _found_to: int = 0
    """How many transactional ids a look for their producers has asked for that has not ended."""
    _signed_at: float = 0.0
    _signs: tuple[ClaimFact | None, OwnerFact | None] = (None, None)
    """What another owner was last seen to have written."""
    _signs_since: float = -math.inf
    """When that was first seen, in monotonic seconds."""
    _seen_alive_at: float = -math.inf
    """When another owner was last seen to write something new."""

    async def make_topics(self) -> None:
        """Create the internal topics that do not exist."""
        self._note_topic(await self.internal.ensure())

    def _note_topic(self, topic: TopicDescription) -> None:
        self.positions.note_topic(topic)
        self.journal.partition_count = topic.partition_count

    async def take_over(self, *, displaced: bool, reported: Mapping[TopicPartition, int]) -> None:
        """Become the owner: fence all earlier owners and read the log; and sign, once the log has all that is
        known. `reported`: the positions that this process's tasks told last.

        `displaced`: this process was the owner, was fenced, and no election says that it is the owner again.
        If another process has claimed since, that one is the owner, and this process waits until it is gone.
        So the newest start wins, and two processes never displace each other in turn. Raises StateError
        (OWNED_ELSEWHERE, or TWIN_DEPLOYMENT if the other's file selects other topics or groups;
        IMPORT_UNFINISHED), and FatalKafkaError (PRODUCER_FENCED) when another process claims at the same
        time.
        """
        if displaced:
            await self._give_way_to_a_living_owner()
        self.note_signs()
        await self.journal.record(
            ClaimFact(instance=self.instance_id, at_ms=self.clock.now_ms(), rules=self.flow.rules)
        )
        await self._fence_all_before()
        positions = await self.positions.refresh()
        self.require_claim()
        self._require_whole_state()
        owner = self.positions.control.owner
        if owner is not None and owner.instance != self.instance_id:
            self.is_outdated = True
        self.former_left_at_rest = owner is not None and (
            owner.left_at_rest or self._was_gone_long_ago(owner)
        )
        self.is_still_at_rest = self.former_left_at_rest
        await self._doubt_foreign_positions(owner)
        if self.positions.has_lost:
            await self.write_again(reported)
        elif not self.flow.settings.exactly_once:
            # Its tasks write data before positions: if one is killed, the one before must not say so.
            await self.journal.positions(
                {each: at for each, at in positions.items() if each in self.positions.nothing_written}
            )
        await self.sign()
        log.info(
            "flow_taken_over",
            flow=str(self.flow.flow),
            positions=len(positions),
            fenced_slots=self._slots,
        )

    async def write_again(self, reported: Mapping[TopicPartition, int]) -> None:
        """Without what the log has lost, a later process would begin copies again. `reported`: as for
        `take_over`."""
        known = self.positions.known()
        await self.journal.write_again(self.positions)
        for partition, position in reported.items() if not self.is_outdated else ():
            # Its task committed it after the log was read last.
            if position > known.get(partition, 0):
                await self.journal.position(partition, position)
        self.positions.was_written_again()

    def note_signs(self) -> None:
        """Note whether the owner has written something since the last call. A process that follows the log on
        standby knows by its own clock how long the owner has been silent."""
        control, now = self.positions.control, self.clock.monotonic()
        signs = control.claim, control.owner
        if signs != self._signs:
            if self._signs != (None, None):
                self._seen_alive_at = now
            self._signs, self._signs_since = signs, now

    def _was_gone_long_ago(self, owner: OwnerFact) -> bool:
        """By the clocks of both processes; and not if this one has seen the other alive since then, because
        their clocks may differ."""
        claim = self.positions.control.former_claim
        seen_at_ms = max(owner.renewed_at_ms, 0 if claim is None else claim.at_ms)
        silent_seconds = min(
            (self.clock.now_ms() - seen_at_ms) / 1000, self.clock.monotonic() - self._seen_alive_at
        )
        return silent_seconds > AT_REST_AFTER_SECONDS

    def _require_whole_state(self) -> None:
        restoring = self.positions.control.restoring
        if restoring is not None:
            raise StateError(
                f"an import of the state of {self.flow.flow} is running or was interrupted, so its"
                " positions are not complete. Stop its services, and run `twinlog state import` again with"
                " the same file",
                reason="IMPORT_UNFINISHED",
                metadata={"flow": str(self.flow.flow)},
            )

    async def _give_way_to_a_living_owner(self) -> None:
        """Raises StateError (OWNED_ELSEWHERE, TWIN_DEPLOYMENT)."""
        await self.positions.refresh()
        claim = self.positions.control.claim
        if claim is None or claim.instance == self.instance_id:
            return
        # By this clock alone: the other's may differ.
        self.note_signs()
        silent_seconds = self.clock.monotonic() - self._signs_since
        if silent_seconds < STALE_OWNER_SECONDS:
            if are_twins(self.flow.rules, claim.rules):
                raise twin_deployment(self.flow.flow, claim.instance)
            raise StateError(
                f"another process copies {self.flow.flow} now (it was seen {silent_seconds:.0f} s ago);"
                f" this one takes over when it has been silent for {STALE_OWNER_SECONDS:g} s",
                reason=OwnerReason.OWNED_ELSEWHERE,
                metadata={"flow": str(self.flow.flow), "owner": claim.instance},
            )

    async def _fence_all_before(self) -> None:
        """Fence every id that was ever used. This ends open transactions of a killed owner at once, not by
        their time-out.

        An open transaction may hide the newest fact, which may announce more slots. It can only be a
        transaction of an id that earlier facts announce, because a fact is written before its slots are used.
        """
        fenced_slots = 0
        while True:
            await self.positions.peek()
            owner = self.positions.control.owner
            self._slots = max(self._slots, owner.slots if owner is not None else 0)
            if self._slots <= fenced_slots:
                return
            await self.fence(every_transactional_id(self.flow, self._slots), {})
            fenced_slots = self._slots

    async def _doubt_foreign_positions(self, owner: OwnerFact | None) -> None:
        """MirrorMaker 2 copied meanwhile, or somebody set positions: the facts next to these positions do not
        belong to them."""
        control = self.positions.control
        target_id = self.producers.target_id
        foreign = foreign_positions(self.positions, target_id)
        for partition in list(control.leader_epochs):
            if partition in foreign:
                await self.journal.retract("epochs", partition.topic, partition.partition)
                control.retract("epochs", partition.topic, partition.partition)
        for partition, copy in list(control.copies.items()):
            is_older = owner is not None and not owner.keeps_offsets
            if copy.preserved and (is_older or partition in foreign):
                # Others may have written to the copy, so it is unknown which of its offsets are the source's.
                ended = replace(copy, preserved=False, since=0, reason="POSITION_STORED")
                await self.journal.record(ended)
                control.record(ended)
        for partition in foreign & control.origins.keys():
            # Others have written copies that no fact names.
            await self.journal.retract("origin", partition.topic, partition.partition)
            control.retract("origin", partition.topic, partition.partition)
        names = found_producers(self.positions, foreign, target_id)
        if control.writer is not None:
            names[control.writer.producer_id] = PRESERVED
        await self.producers.store(names)

    async def find_producers(self) -> None:
        """Name the producers of the flow's transactional ids, and fence those of slots that this owner does
        not know: its log may have lost their names. Raises KafkaError within `FIND_SECONDS`; the next call
        goes on from there; and FatalKafkaError (PRODUCER_FENCED) when another process has claimed the
        flow."""
        every, step = every_transactional_id(self.flow, MOST_SLOTS), SLOTS_AT_ONCE * IDS_PER_SLOT
        async with deadline(FIND_SECONDS, "ask for the flow's producers", alias=self.flow.flow.target):
            for begin in range(self._found_to, len(every), step):
                if not (found := await self.known_producers(every[begin : begin + step])):
                    break
                await self.producers.store(found)
                former = set(every[self._slots * IDS_PER_SLOT :]).intersection(found.values())
                if former:
                    await self.look_at_claim()  # This process may have slept.
                    await self.fence(sorted(former), {})
                    self._slots = max(self._slots, (begin + step) // IDS_PER_SLOT)
                    await self.sign()
                self._found_to = begin + step
        self._found_to = 0

    async def note_slots(self, slots: int) -> None:
        """Record the slots before they are used: the next owner must fence all of them, has to expect writes
        in flight, and must not take this owner for one that has been gone for long."""
        if slots <= self._slots and not self.is_still_at_rest and not self.is_due:
            return
        before = self._slots, self.is_still_at_rest
        self._slots, self.is_still_at_rest = max(slots, self._slots), False
        try:
            await self.sign()
        except BaseException:
            self._slots, self.is_still_at_rest = before
            raise

    async def fence_slots(self, epoch: int, slots: Sequence[int]) -> None:
        """Make sure that no task of these slots of an epoch can commit any more."""
        await self.fence([name for slot in slots for name in ids_of_slot(self.flow, epoch, slot)], {})

    async def end_hanging(self, epoch: int, copies: Mapping[TopicPartition, TopicPartition]) -> None:
        """End the hanging transactions of an epoch's ids, and of ids of slots that are no longer used, on any
        copy. Call it before the epoch's tasks initialise these ids. Raises KafkaError."""
        slots = range(self._slots)
        await self.fence([name for slot in slots for name in ids_of_slot(self.flow, epoch, slot)], copies)

    @property
    def is_due(self) -> bool:
        """Whether it is time to sign again, so that others see that the owner lives."""
        return self.clock.monotonic() - self._signed_at >= RENEW_SECONDS

    async def check(self) -> None:
        """Raises FatalKafkaError (PRODUCER_FENCED) when another process has claimed the flow since this one
        did. Creates the positions topic if somebody deleted it.

        Call it after a task has initialised its ids and before it starts; and from time to time, because a
        task without work would not notice.
        """
        self._note_topic(await self.internal.positions())
        await self.positions.refresh()
        self.require_claim()

    async def look_at_claim(self) -> None:
        """`check` with committed records only, without waiting for open transactions. A claim behind an open
        transaction is not seen."""
        await self.positions.peek()
        self.require_claim()

    def require_claim(self) -> None:
        """`check` with the records read so far."""
        claim = self.positions.control.claim
        if claim is not None and claim.instance != self.instance_id:
            raise FatalKafkaError(
                f"another process has taken {self.flow.flow} over",
                reason=FENCED,
                metadata={"flow": str(self.flow.flow), "owner": claim.instance},
            )

    async def sign(self, *, left_at_rest: bool | None = None) -> None:
        """`left_at_rest`: None = as the previous owner recorded it, as long as no slot was used."""
        self._signed_at = self.clock.monotonic()
        mark = OwnerFact(
            instance=self.instance_id,
            slots=self._slots,
            renewed_at_ms=self.clock.now_ms(),
            names_producers=True,
            left_at_rest=self.is_still_at_rest if left_at_rest is None else left_at_rest,
            former_topics=self.positions.former_topics,
        )
        await self.journal.record(mark)

    async def leave(self, *, at_rest: bool) -> None:
        """Give the flow back once its tasks have ended or are fenced. `at_rest`: no write to preserved copies
        is in flight either. Raises FatalKafkaError (PRODUCER_FENCED) when another process has claimed the
        flow."""
        await self.check()
        await self.sign(left_at_rest=at_rest)
