"""The loop that turns a flow's group offsets into checkpoints."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import random

from twinlog.clock import Clock
from twinlog.errors import KafkaError, TwinlogError
from twinlog.kafka.ports import KafkaCluster, LogWriter
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import Flow, TopicPartition
from twinlog.offsets import CheckpointHistory, target_partition
from twinlog.service.runtime import Backoff, retrying_loop
from twinlog.service.waiting import wait_or_stop
from twinlog.telemetry.metrics.spec import flow_attributes
from twinlog.telemetry.tracing import span
from twinlog.wire import Checkpoint
from twinlog_checkpoint.config import CheckpointFlow
from twinlog_checkpoint.groups.checkpoint_log import CheckpointLog
from twinlog_checkpoint.groups.directory import (
    Candidate,
    GroupDirectory,
    ProgressRows,
    TopicChoice,
    candidates_of,
)
from twinlog_checkpoint.groups.instruments import CheckpointInstruments
from twinlog_checkpoint.groups.progress import ProgressTable, unreadable_verdict
from twinlog_checkpoint.side_by_side import each_at_once, in_turns
from twinlog_checkpoint.translation.log_sides import log_ends
from twinlog_checkpoint.translation.sync_tail import SyncTail
from twinlog_checkpoint.translation.translation import SourcePosition, Translation, Translator, Verdict

# Translates each committed offset, or tells why it has no translation.


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    flow: Flow
    topics: TopicChoice
    tail: SyncTail
    translator: Translator

    async def of(self, candidates: Iterable[Candidate]) -> Mapping[SourcePosition, Translation]:
        """Return a verdict for each position. Topics that are not copied are never translated."""
        positions = {candidate.position for candidate in candidates}
        verdicts: dict[SourcePosition, Translation] = {}
        for position in positions:
            known = self._without_translation(position)
            if known is not None:
                verdicts[position] = known
        answers = await self.translator.translate(positions - verdicts.keys())
        for position, answer in answers.items():
            verdicts[position] = self._explained(position, answer)
        return verdicts

    def _without_translation(self, position: SourcePosition) -> Translation | None:
        rule = self.topics.refusal(position.partition.topic)
        if rule is not None:
            return Translation(verdict=Verdict.NOT_REPLICATED, downstream_offset=None, message=rule)
        if self.tail.store.read_to_end or self.tail.blocker is None:
            return None
        missing = self.tail.blocker.reason == KafkaReason.TOPIC_UNKNOWN
        return Translation(
            verdict=Verdict.NO_SYNC if missing else unreadable_verdict(self.flow, self.tail.blocker),
            downstream_offset=None,
            message=self.tail.problem,
        )

    def _explained(self, position: SourcePosition, answer: Translation) -> Translation:
        """Replace NO_SYNC by the rule that excludes the topic, if there is one."""
        if answer.verdict is not Verdict.NO_SYNC:
            return answer
        rule = self.topics.why_never_copied(position.partition.topic)
        if rule is None:
            return answer
        return Translation(verdict=Verdict.NOT_REPLICATED, downstream_offset=None, message=rule)


CLOSE_SECONDS = 5.0
"""How often groups are followed where no log has to be read for them."""
CLOSE_SHARE = 20.0
"""Then at most this part of the time is spent on them."""
WRITES_AT_ONCE = 256
"""Checkpoints that are being written at the same time. They share batches and do not wait for each other's
acknowledgement."""
CLUSTER_LOOK_SECONDS = 1.0


def wait_seconds(interval_seconds: float, *, close: bool, took_seconds: float) -> float:
    """From the end of a pass to the next one.

    >>> wait_seconds(60.0, close=False, took_seconds=1.0), wait_seconds(60.0, close=True, took_seconds=0.1)
    (59.0, 4.9)
    >>> wait_seconds(60.0, close=True, took_seconds=1.0)
    19.0
    """
    if close:
        interval_seconds = min(interval_seconds, max(CLOSE_SECONDS, CLOSE_SHARE * took_seconds))
    return interval_seconds - took_seconds


def follows_closely(translations: Iterable[Translation]) -> bool:
    """Whether the offsets of groups are those of the source, wherever they have any; also while none has one:
    their copies may just begin."""
    told = list(translations)
    verdicts = {each.verdict for each in told if each.downstream_offset is not None}
    return bool(told) and verdicts <= {Verdict.PRESERVED, Verdict.UP_TO_DATE}


@dataclass(slots=True, kw_only=True)
class Checkpointer:
    """The checkpoints of one flow. Every emit.checkpoints.interval.seconds, or every few seconds, a pass
    reads the groups, translates their offsets, and writes the checkpoints that the guard accepts.

    It writes nothing before the checkpoint history is restored and the first pass over the offset syncs is
    done.
    """

    entry: CheckpointFlow
    source: KafkaCluster
    target: KafkaCluster
    writer_cluster: KafkaCluster
    """The target cluster, with the settings of the checkpoints' producer."""
    groups: GroupDirectory
    topics: TopicChoice
    tail: SyncTail
    log: CheckpointLog
    translator: Translator
    history: CheckpointHistory
    table: ProgressTable
    instruments: CheckpointInstruments
    clock: Clock
    refusal: Callable[[Flow], TwinlogError | None]
    away: Callable[[], TwinlogError | None]
    """Returns the cluster that did not answer the last probe; None when both did."""
    is_both_ways: Callable[[TopicPartition], bool] = lambda _source: False
    """Whether a source topic is copied both ways: its offsets and those of the copy have another order then,
    and syncs contradict no checkpoint."""
    learn_rules: Callable[[], Awaitable[None]] | None = None
    """Applies the stored changed rules; called before the first write. None: only the rules of the file
    apply."""
    learn_rules_back: Callable[[], Awaitable[None]] | None = None
    """Applies those of the flow back; called before the first translation. The source stores them: what is
    known without it does not wait for them."""
    passes: int = 0
    """Number of passes since the offset syncs were read."""
    close: bool = False
    """No log has to be read for the groups, and no interval is set."""
    verdicts: Verdicts = field(init=False)
    rows: ProgressRows = field(init=False)
    restored: bool = False
    """Whether the earlier checkpoints are known."""
    _learned: bool = False
    """The stored changed rules apply."""
    _learned_back: bool = False
    _backoff: Backoff = field(init=False)
    """Of passes that fail."""
    _next_pass_at: float = field(default=0.0)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a pass may be due at once: rules have changed, or the offset syncs have just been read."""
    _targets: dict[TopicPartition, TopicPartition] = field(default_factory=dict)
    """The target partitions of this pass."""
    _copy_ids: dict[str, str] = field(default_factory=dict)
    """Kafka's ids of copies, as of the last look at each."""
    _compared: dict[tuple[str, TopicPartition], tuple[int, int, int]] = field(default_factory=dict)
    """By group and target partition: the offsets of an answer that was compared with the records although an
    offset sync seems to contradict it, and the generation of the known pairs then."""

    def __post_init__(self) -> None:
        self.tail.on_turn = self._pass_now
        self._backoff = Backoff(
            initial_seconds=0.5, max_seconds=_longest_wait_seconds(self.entry), random=random
        )
        flow = self.entry.flow
        self.verdicts = Verdicts(flow=flow, topics=self.topics, tail=self.tail, translator=self.translator)
        self.rows = ProgressRows(
            flow=flow, source=self.source, target=self.target, target_of=self._target, clock=self.clock
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Loop: do a pass whenever one is due, until `stop`. May run again after another process owned the
        flow."""
        self.restored, self._learned, self._learned_back = False, False, False
        self.passes, self._next_pass_at = 0, 0.0
        self._backoff.reset()
        self.tail.kept.begin()
        writer: LogWriter | None = None

        async def tick() -> None:
            nonlocal writer
            if writer is None:
                # In the retried step, because it may raise ConfigError.
                writer = await stack.enter_async_context(self.writer_cluster.writer())
            await self._tick(writer)

        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._watch_clusters(stop), name=f"clusters of {self.entry.flow}")
            await retrying_loop(
                f"checkpoints {self.entry.flow}",
                tick,
                stop=stop,
                interval_seconds=lambda: self._next_pass_at - self.clock.monotonic(),
                backoff=self._backoff,
                clock=self.clock,
                on_error=self._on_error,
                woken=self._woken,
            )
            watching.cancel()

    async def stand_by(self, stop: asyncio.Event, *, why: Callable[[], TwinlogError | None]) -> None:
        """Loop while this process does not own the flow; `why`: a cluster that does not tell who does keeps
        what was known last from being confirmed."""
        while not stop.is_set():
            refusal = why()
            if isinstance(refusal, KafkaError) and "cluster" in refusal.metadata:
                self._mark(refusal)
            await wait_or_stop(stop, CLUSTER_LOOK_SECONDS)

    def _on_error(self, error: TwinlogError) -> None:
        self.instruments.failed(error.reason)
        self.table.on_all_unreadable(error)

    async def _watch_clusters(self, stop: asyncio.Event) -> None:
        """Mark the rows when a cluster stops answering, also while a pass still waits for that cluster."""
        while not stop.is_set():
            self._mark(self.away())
            await wait_or_stop(stop, CLUSTER_LOOK_SECONDS)

    def _mark(self, away: TwinlogError | None) -> None:
        if away is not None and str(self.table.problem) != str(away):
            self.table.on_all_unreadable(away)

    @property
    def next_listing_ms(self) -> int | None:
        """When the groups are listed again, with a pass, and new ones found; None = not known, or never."""
        due_ms = self.groups.next_listing_ms
        if due_ms is None:
            return None
        left_seconds = self._next_pass_at - self.clock.monotonic()
        return max(due_ms, self.clock.now_ms() + int(left_seconds * 1000))

    @property
    def rules_known(self) -> bool:
        """Whether the stored rules were read since this process became the owner. `FlowParts.rules` says
        whether they apply."""
        return self.learn_rules is None or self._learned

    @property
    def rules_back_known(self) -> bool:
        """As `rules_known`, of the flow back, as far as translations need them."""
        return self.learn_rules_back is None or self._learned_back

    def copies(self, source_topic: str, copy: str) -> bool:
        """Whether the rules that apply now copy a topic into this copy; configsync need not have noticed the
        topic."""
        entry = self.entry
        named = entry.policy.format_remote_topic(entry.flow.source, source_topic)
        return not entry.is_stopped and named == copy and entry.topics.selects(source_topic)

    def follow(self, entry: CheckpointFlow) -> None:
        """Apply changed rules (topics, groups, intervals) by a pass that begins at once."""
        self.entry = entry
        self.groups.follow(
            entry.groups,
            refresh_enabled=entry.settings.refresh_groups_enabled,
            interval_seconds=entry.settings.refresh_groups_interval_seconds,
        )
        self._backoff.max_seconds = _longest_wait_seconds(entry)
        self._pass_now()

    def look_again(self) -> None:
        """List all groups and translate their offsets at once, because a move has changed them."""
        self.groups.list_again()
        self._pass_now()

    def _pass_now(self) -> None:
        self._next_pass_at = 0.0
        self._woken.set()

    async def _tick(self, writer: LogWriter) -> None:
        """Do a pass if one is due."""
        now = self.clock.monotonic()
        if now < self._next_pass_at:
            return
        interval_seconds = self.entry.settings.emit_interval_seconds
        # Clear it before the pass: a pass that is requested meanwhile follows at once.
        self._next_pass_at = asked_for = now + interval_seconds
        flow = self.entry.flow
        try:
            with span("checkpoint pass", flow_attributes(flow.source, flow.target)):
                await self.do_pass(writer)
        except BaseException:
            self._next_pass_at = 0.0
            raise
        if self.close and self._next_pass_at == asked_for:
            ended = self.clock.monotonic()
            self._next_pass_at = ended + wait_seconds(interval_seconds, close=True, took_seconds=ended - now)

    async def do_pass(self, writer: LogWriter) -> None:
        """Read the groups, translate their offsets, write the checkpoints that the guard accepts, and renew
        the table. Raises KafkaError."""
        refused = self.refusal(self.entry.flow)
        if refused is not None:
            raise refused
        if not self.restored:
            if self.learn_rules is not None:
                await self.learn_rules()
                self._learned = True
            read = CheckpointHistory()
            restored = await self.log.restore(read)
            self.history.become(read)
            self.tail.on_restored(checkpoints_restored=restored)
            self.restored = True
        if self.learn_rules_back is not None and not self._learned_back:
            await self.learn_rules_back()
            self._learned_back = True
        read_at = self.clock.monotonic()
        copies = {target.topic for target in self._targets.values()}
        self._targets.clear()
        for _ in range(2):
            # The ids first: an offset of a topic that is gone gets no place in one that was created since.
            copy_ids = await self.look_at_copies(copies)
            offsets = await self.groups.offsets()
            readable = {group: held for group, held in offsets.items() if not isinstance(held, KafkaError)}
            candidates = list(candidates_of(readable, self.topics.routes()))
            if copies >= (copies := {self._target(each.source).topic for each in candidates}):
                break
        ready = self.tail.store.read_to_end
        generations = self._generations(candidates)
        translations = await self.verdicts.of(candidates)
        self.close = self.entry.settings.follows_closely and follows_closely(translations.values())
        if ready:
            await self._note_compared(candidates, translations, generations)
            await self._emit(writer, candidates, translations, read_at)
            await self._confirm(candidates, translations, copy_ids)
            if len(readable) == len(offsets):
                self.history.forget_old((each.group, self._target(each.source)) for each in candidates)
            self.passes += 1
        rows = await self.rows.of(candidates, translations)
        away = self.away()
        if away is not None:
            raise away
        self.table.replace_all(
            rows,
            now_ms=self.clock.now_ms(),
            unreadable={group: held for group, held in offsets.items() if isinstance(held, KafkaError)},
        )
        await self.tail.keep(writer)

    async def _emit(
        self,
        writer: LogWriter,
        candidates: Iterable[Candidate],
        translations: Mapping[SourcePosition, Translation],
        read_at: float,
    ) -> None:
        due: list[Checkpoint] = []
        held_back: list[Checkpoint] = []
        async for candidate in in_turns(candidates):
            translation = translations[candidate.position]
            self.instruments.considered(translation.verdict)
            if translation.downstream_offset is None:
                continue
            checkpoint = Checkpoint(
                group=candidate.group,
                partition=self._target(candidate.source),
                upstream_offset=candidate.committed.next_offset,
                downstream_offset=translation.downstream_offset,
                metadata=candidate.committed.metadata,
                topic_ids=translation.topic_ids,
            )
            if self.history.admits(checkpoint, lower=self._may_be_lower(candidate, checkpoint, translation)):
                due.append(checkpoint)
            elif checkpoint.downstream_offset < self._last(checkpoint).downstream_offset:
                held_back.append(checkpoint)
        ends = await log_ends(self.target, {checkpoint.partition for checkpoint in held_back})
        for checkpoint in held_back:
            end = ends.get(checkpoint.partition)
            # The log was created again or truncated: the offset of the last checkpoint no longer exists.
            if end is not None and self._last(checkpoint).downstream_offset > end:
                due.append(checkpoint)

        async def write(checkpoint: Checkpoint) -> None:
            try:
                await self.log.append(writer, checkpoint)
            except KafkaError as error:
                if error.reason == KafkaReason.TOPIC_UNKNOWN:
                    # The topic could not be created at the start, or was deleted: the next pass creates it.
                    self.restored = False
                raise
            self.history.remember(checkpoint)
            self.instruments.emitted(self.clock.monotonic() - read_at)

        await each_at_once(due, write, most=WRITES_AT_ONCE, name="write checkpoints")

    async def look_at_copies(self, copies: Collection[str]) -> Mapping[str, str]:
        """The ids that topics of the target have now; those that are not there, or not told of, are left out.
        Raises KafkaError."""
        described = await self.target.describe_topics(copies) if copies else {}
        found = {name: each.topic_id for name, each in described.items() if not isinstance(each, KafkaError)}
        self._copy_ids |= found
        return found

    async def _confirm(
        self,
        candidates: Iterable[Candidate],
        translations: Mapping[SourcePosition, Translation],
        copy_ids: Mapping[str, str],
    ) -> None:
        async for each in in_turns(candidates):
            target = self._target(each.source)
            copy_id = copy_ids.get(target.topic)
            if copy_id is not None and translations[each.position].downstream_offset is not None:
                self.history.confirm(each.group, target, copy_id)

    def _may_be_lower(self, candidate: Candidate, checkpoint: Checkpoint, translation: Translation) -> bool:
        """Whether the checkpoint may replace a last one with a higher offset: its records were compared, or
        the offset syncs contradict the last one (the copy lost its tail)."""
        last = self.history.latest(checkpoint.group).get(checkpoint.partition)
        return translation.is_certain or (last is not None and self.is_void(candidate.source, last))

    def is_void(self, source: TopicPartition, checkpoint: Checkpoint) -> bool:
        """Whether the offset syncs contradict a checkpoint of this partition: the copy has lost its records;
        or the copy was created again.

        An answer that was compared with the records, or is the start of the copy's log, is not void. It lies
        behind the copy of a later record where compaction or retention has removed that copy.
        """
        of, now = self.history.copy_id(checkpoint), self._copy_ids.get(checkpoint.partition.topic)
        is_another = None not in (of, now) and of != now
        if is_another or self.is_both_ways(source):
            return is_another
        pairs = self.tail.history.of(source)
        upstream, downstream = checkpoint.upstream_offset, checkpoint.downstream_offset
        if pairs is None or not pairs.contradicts(upstream, downstream):
            return False
        compared = self._compared.get((checkpoint.group, checkpoint.partition))
        return compared != (upstream, downstream, pairs.generation)

    def _generations(self, candidates: Iterable[Candidate]) -> dict[TopicPartition, int]:
        """The generation of the known pairs of each source partition."""
        known = {each.source: self.tail.history.of(each.source) for each in candidates}
        return {source: pairs.generation for source, pairs in known.items() if pairs is not None}

    async def _note_compared(
        self,
        candidates: Iterable[Candidate],
        translations: Mapping[SourcePosition, Translation],
        generations: Mapping[TopicPartition, int],
    ) -> None:
        """Remember the answers of this pass that are right although an offset sync seems to contradict them.
        An earlier one stays where this pass has compared nothing."""
        compared: dict[tuple[str, TopicPartition], tuple[int, int, int]] = {}
        async for candidate in in_turns(candidates):
            key = candidate.group, self._target(candidate.source)
            translation, upstream = translations[candidate.position], candidate.committed.next_offset
            downstream, pairs = translation.downstream_offset, self.tail.history.of(candidate.source)
            if not (translation.is_certain or translation.is_start):
                if key in self._compared:
                    compared[key] = self._compared[key]
            elif pairs is not None and downstream is not None and pairs.contradicts(upstream, downstream):
                # Pairs that were not known before the pass may contradict its answers: the next pass tells.
                compared[key] = upstream, downstream, generations.get(candidate.source, -1)
        self._compared = compared

    def _last(self, checkpoint: Checkpoint) -> Checkpoint:
        """The previous checkpoint, which exists here."""
        return self.history.latest(checkpoint.group)[checkpoint.partition]

    def _target(self, source: TopicPartition) -> TopicPartition:
        """Return the same object each time within a pass, because a flow has far more offsets than
        partitions."""
        target = self._targets.get(source)
        if target is None:
            target = self._targets[source] = target_partition(self.entry.policy, self.entry.flow, source)
        return target


def _longest_wait_seconds(entry: CheckpointFlow) -> float:
    """The longest wait after a failed pass."""
    return max(1.0, min(entry.settings.emit_interval_seconds, 30.0))
