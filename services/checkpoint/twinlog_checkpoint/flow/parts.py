"""The parts of one flow that RPCs and moves use."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from twinlog.errors import KafkaError, StateError, TwinlogError
from twinlog.kafka.ports import KafkaCluster
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import Flow, TopicPartition
from twinlog.offsets import CheckpointHistory, target_partition
from twinlog.policy import ReplicationPolicy
from twinlog.service.owner.lease import FlowLease
from twinlog.wire import Checkpoint, TopicIds
from twinlog_checkpoint.config import CheckpointFlow
from twinlog_checkpoint.groups.checkpointer import Checkpointer
from twinlog_checkpoint.journal import KnownFences, MovesTable
from twinlog_checkpoint.translation.exact import LogSide
from twinlog_checkpoint.translation.history import PairHistory, ReversedPairs
from twinlog_checkpoint.translation.shared_copies import SharedCopies
from twinlog_checkpoint.translation.sync_tail import SyncTail
from twinlog_checkpoint.translation.translation import Translator

T = TypeVar("T")


class ServedElsewhere:
    """For a flow of the file that this process does not run: never the owner."""

    def __init__(self, flow: Flow) -> None:
        self._refusal = StateError(
            f"this process does not run {flow}", reason="OWNED_ELSEWHERE", metadata={"flow": str(flow)}
        )

    def refusal(self) -> TwinlogError | None:
        return self._refusal

    async def require(self) -> None:
        raise self._refusal

    async def hold(self, step: Callable[[], Coroutine[Any, Any, T]], *, grace_seconds: float = 0.0) -> T:
        raise self._refusal


Duty = FlowLease | ServedElsewhere
"""Tells whether this process owns the flow."""


class RulesInForce(Protocol):
    """Tells whether the flow's rules are those that an operator has changed. Implemented by
    `twinlog_checkpoint.flow.live_rules.RulesFollower`."""

    @property
    def problem(self) -> str:
        """Why other rules than the stored ones may apply; "" when the stored ones apply."""
        ...

    @property
    def changed_keys(self) -> Collection[str]:
        """The keys of the known rules, which differ from the file."""
        ...


class UnchangedRules:
    """For a service without configsync: nobody changes the rules of the file."""

    problem: str = ""
    changed_keys: Collection[str] = ()


class MoveLock(asyncio.Lock):
    """Held while a move of the flow runs in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        """The number of moves that have begun, also those that have ended."""
        self.on_end: Callable[[], None] = lambda: None

    async def acquire(self) -> Literal[True]:
        taken = await super().acquire()
        self.begun += 1
        return taken

    def release(self) -> None:
        super().release()
        self.on_end()


@dataclass(slots=True, kw_only=True)
class ReadHistory:
    """The checkpoints that another process has written, as of the last `FlowParts.refresh`."""

    history: CheckpointHistory = field(default_factory=CheckpointHistory)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowParts:
    checkpointer: Checkpointer
    forward: Translator
    """From topics of the source to their copies; the checkpointer uses the same translator."""
    back: Translator
    """From the copies to the source's topics."""
    shared: SharedCopies
    source_log: LogSide
    target_log: LogSide
    moves: MovesTable
    duty: Duty
    rules: RulesInForce = field(default_factory=UnchangedRules)
    fences: KnownFences = field(default_factory=KnownFences)
    moving: MoveLock = field(default_factory=MoveLock)
    read: ReadHistory = field(default_factory=ReadHistory)

    @property
    def entry(self) -> CheckpointFlow:
        """The rules that apply now; they may change while the service runs."""
        return self.checkpointer.entry

    @property
    def flow(self) -> Flow:
        return self.checkpointer.entry.flow

    @property
    def source(self) -> KafkaCluster:
        return self.checkpointer.source

    @property
    def target(self) -> KafkaCluster:
        return self.checkpointer.target

    @property
    def history(self) -> CheckpointHistory:
        """The flow's checkpoints: those of this process while it owns the flow."""
        return self.checkpointer.history if self.duty.refusal() is None else self.read.history

    async def refresh(self) -> None:
        """Read rules and checkpoints again if another process owns the flow. Raises KafkaError.

        Without the checkpoints a move would take offsets for the groups' own that the flow has committed."""
        if self.duty.refusal() is None:
            return
        if self.checkpointer.learn_rules is not None:
            await self.checkpointer.learn_rules()
        history = CheckpointHistory()
        try:
            await self.checkpointer.log.read(history)
        except KafkaError as error:
            if error.reason != KafkaReason.TOPIC_UNKNOWN:
                raise
        self.read.history = history

    @property
    def syncs_are_read(self) -> bool:
        return self.checkpointer.tail.store.read_to_end

    @property
    def blocker(self) -> str:
        """Why groups cannot be translated now; empty when they can."""
        refused = self.duty.refusal()
        if refused is not None:
            return str(refused)
        tail, failed = self.checkpointer.tail, self.checkpointer.table.problem
        if failed is None or (tail.problem and not self.syncs_are_read):
            return tail.problem
        return str(failed)

    @property
    def blocker_reason(self) -> str:
        """The stable reason of `blocker`."""
        failed = self.checkpointer.table.problem
        error = self.duty.refusal() or (failed if self.syncs_are_read else None)
        error = error or self.checkpointer.tail.blocker or failed
        return "" if error is None or not self.blocker else error.reason

    def copy_of(self, partition: TopicPartition) -> TopicPartition:
        """Return the partition of the target that holds the copy."""
        return target_partition(self.entry.policy, self.flow, partition)

    def origin_of(self, partition: TopicPartition) -> TopicPartition | None:
        """Return the partition of the source of which this partition of the target is a copy; None if it is
        no copy."""
        origin = named_origin(self.flow, self.entry.policy, partition)
        if origin is not None and self.checkpointer.topics.is_route(origin.topic):
            return origin
        return origin_of(self.entry, partition)

    def copies(self, topic: str) -> bool:
        """Whether the rules of the flow select a topic of the source; the copy need not exist yet, and
        configsync need not have noticed the topic."""
        return self.checkpointer.topics.why_never_copied(topic) is None

    def has_had(self, topic: str) -> bool:
        """Whether a topic of the source is, or was, the flow's: the rules select it, which need not exist, or
        offset syncs tell that it was copied before it left the rules."""
        return self.entry.topics.selects(topic) or self.checkpointer.tail.history.has_topic(topic)

    def had_origin_of(self, partition: TopicPartition) -> TopicPartition | None:
        """As `origin_of`, also for a copy whose topic was copied before it left the rules."""
        origin = named_origin(self.flow, self.entry.policy, partition)
        return origin if origin is not None and self.has_had(origin.topic) else None

    def has_had_copy(self, topic: str) -> bool:
        """As `has_had`, for the original of a topic of the target."""
        return self.had_origin_of(TopicPartition(topic, 0)) is not None

    def is_void(self, checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint has no place any more: the copy has lost its records, as offset syncs show,
        or another flow writes it, too."""
        if self.shared.why(checkpoint.partition.topic):
            return True
        origin = self.origin_of(checkpoint.partition)
        return origin is not None and self.checkpointer.is_void(origin, checkpoint)

    def pairs(self, partition: TopicPartition) -> PairHistory | None:
        """The known pairs of a partition of the source."""
        return self.checkpointer.tail.history.of(partition)


def origin_of(entry: CheckpointFlow, partition: TopicPartition) -> TopicPartition | None:
    """Return the partition of the flow's source of which this partition of the target is a copy; None if the
    flow does not copy it.

    If copies keep the names, every selected topic counts as a copy.
    """
    origin = named_origin(entry.flow, entry.policy, partition)
    return origin if origin is not None and entry.topics.selects(origin.topic) else None


def named_origin(flow: Flow, policy: ReplicationPolicy, partition: TopicPartition) -> TopicPartition | None:
    """Return the partition of the source that a copy's name tells, whether or not the flow selects it; None
    if the name is not that of a copy."""
    if policy.topic_source(partition.topic) != flow.source:
        return None
    upstream = policy.upstream_topic(partition.topic)
    return None if upstream is None else TopicPartition(upstream, partition.partition)


def original_of(policy: ReplicationPolicy, partition: TopicPartition) -> TopicPartition:
    """Return the partition of the source that a copy's name tells, whether or not the flow selects it.

    As `origin_of`, for a partition that was a copy when the caller began: its topic may have left the rules
    since.
    """
    upstream = policy.upstream_topic(partition.topic)
    assert upstream is not None, f"{partition} is a copy"
    return TopicPartition(upstream, partition.partition)


def pairs_of_copy(
    flow: Flow,
    policy: ReplicationPolicy,
    tail: SyncTail,
    ids_of: Callable[[str], TopicIds | None],
    partition: TopicPartition,
) -> ReversedPairs | None:
    """The known pairs, seen from a partition of the target, also before the first sync; None when it is no
    copy, or they are of topics that are gone. `ids_of`: of a source topic and its copy, as far as known."""
    origin = named_origin(flow, policy, partition)
    if origin is None:
        return None
    present = ids_of(origin.topic)
    pairs = tail.history.begun(origin, present)
    is_gone = None not in (pairs.topic_ids, present) and pairs.topic_ids != present
    return None if is_gone else ReversedPairs(pairs)
