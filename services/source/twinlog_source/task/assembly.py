"""Assembles one task: its sessions, its reading and writing half, and its transactional ids, which it
initialises before it reports Prepared.

What a task does before it reports Prepared: find leaders and open connections.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from twinlog.clock import Clock
from twinlog.errors import KafkaError, required
from twinlog.kafka.clients import aiokafka_client_options, fetch_options
from twinlog.kafka.deadline import deadline
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.raw import (
    BatchReader,
    DataClientPool,
    ProducerIdentity,
    ProducerSettings,
    RawFetcher,
    list_offsets,
    prepare_to_fetch,
    prepare_to_produce,
)
from twinlog.kafka.raw.leaders import leader_topic_ids
from twinlog.kafka.raw.lookups import delete_records
from twinlog.kafka.raw.settings import Admit
from twinlog.model import Flow, TopicPartition
from twinlog.transforms.expressions import Expressions, expressions_of
from twinlog.wire import TopicIds
from twinlog_source.log.hanging import TakeOver
from twinlog_source.partitions.orders import ForeignWrite, Route, TaskSetup
from twinlog_source.preserved.filler import Filler
from twinlog_source.preserved.leader_filler import LeaderFiller
from twinlog_source.preserved.tails import CopyTails
from twinlog_source.records.changing import AtSpark, Changing
from twinlog_source.records.dead_letters import DeadLetters
from twinlog_source.task.copier import CALL_TIMEOUT_SECONDS, Copier
from twinlog_source.task.foreign_writes import ForeignWrites, RestingCopies
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.answers import AskRoutes, WhoWrote, no_routes, nobody_knows
from twinlog_source.task.reading.fetch_schedule import Throttle
from twinlog_source.task.reading.source_reader import SourceReader
from twinlog_source.task.settings import copy_settings, horizon_of
from twinlog_source.task.stream.reports import Reporter
from twinlog_source.task.writing.positions_topic import PositionsTopic
from twinlog_source.task.writing.preserved_copies import PreservedCopies
from twinlog_source.task.writing.preserved_writer import PreservedWriter
from twinlog_source.task.writing.round import OffsetSyncs, paced_syncs
from twinlog_source.task.writing.spans import TaskSpans
from twinlog_source.task.writing.target_writer import TargetWriter
from twinlog_source.task.writing.transport import Rounds, producer_settings

READY_SECONDS = 2.0
"""How long a task waits for leaders and connections before it reports Prepared: some ten round trips to
another continent. A cluster that hangs delays the other end's records by no more than that."""


async def make_ready(
    ways: Mapping[str, Callable[[], Awaitable[None]]], *, bound_seconds: float = READY_SECONDS
) -> None:
    """Open all connections concurrently, for at most `bound_seconds`.

    A failure or a time-out is not an error here: the copy meets it again, and reports it.
    """

    async def attempt(doing: str, way: Callable[[], Awaitable[None]]) -> None:
        with contextlib.suppress(KafkaError):
            async with deadline(bound_seconds, doing):
                await way()

    async with asyncio.TaskGroup() as group:
        for doing, way in ways.items():
            group.create_task(attempt(doing, way), name=doing)


MAX_BUFFERED_BYTES = 8 << 20
SYNCS_DELIVERY_SECONDS = 10.0
TAIL_SECONDS = 10.0
"""The time-out of one request about the end of copies; a broker that hangs is asked again."""


@asynccontextmanager
async def open_copier(
    setup: TaskSetup,
    flow: Flow,
    *,
    slot: int,
    clock: Clock,
    ask_driver: Callable[[], Awaitable[Mapping[TopicPartition, int]]],
    admit: Admit,
    may_write: Callable[[], bool],
    changing: Callable[[Expressions], Changing],
    who_wrote: WhoWrote = nobody_knows,
    ask_routes: AskRoutes = no_routes,
) -> AsyncIterator[Copier]:
    """Open a task's clients; its transactional ids are initialised (and so fenced) before this yields. Each
    producer id with which the task writes is admitted before. `changing`: for a flow whose records Spark
    changes.

    Raises KafkaError when the target cannot be reached or refuses. Everything is closed on exit.
    """
    properties = setup.clients
    async with AsyncExitStack() as stack:

        def session(role: str, alias: str) -> DataClientPool:
            options = aiokafka_client_options(properties[role], alias=alias)
            opened = DataClientPool(alias, options, timeout_seconds=CALL_TIMEOUT_SECONDS)
            stack.push_async_callback(opened.close)
            return opened

        source = session("source_consumer", flow.source)
        target = session("data_producer", flow.target)
        copies: dict[TopicPartition, PartitionCopy] = {}
        source_topic_ids: dict[str, str] = {}
        target_topic_ids: dict[str, str] = {}
        settings = replace(
            producer_settings(properties["data_producer"], alias=flow.target),
            admit=admit,
            topic_ids=target_topic_ids,
        )
        on_source = setup.offset_syncs_on_source
        syncs_role = "source_producer" if on_source else "target_producer"
        syncs_host = flow.source if on_source else flow.target
        syncs = OffsetSyncs(
            topic=setup.offset_syncs_topic,
            session=session(syncs_role, syncs_host),
            settings=producer_settings(
                properties[syncs_role], alias=syncs_host, delivery_seconds=SYNCS_DELIVERY_SECONDS
            ),
            paced=paced_syncs(
                int(setup.settings["offset.lag.max"]),
                flush_seconds=int(setup.settings["offset.flush.interval.ms"]) / 1000,
            ),
            topic_ids=partial(_copied_topics, copies, source_topic_ids, target_topic_ids),
            clock=clock,
        )
        target_reads = session("target_consumer", flow.target)
        positions_topic = PositionsTopic(
            topic=setup.positions_topic,
            partition_count=setup.positions_partition_count,
            source_alias=flow.source,
            connector_name=setup.connector_name,
        )
        fetching = fetch_options(properties["source_consumer"], alias=flow.source)
        dials = copy_settings(setup, flow.source, check_crcs=fetching.check_crcs)
        by_target: dict[TopicPartition, PartitionCopy] = {}
        throttle = Throttle()

        take_over = TakeOver(
            session=target,
            positions=positions_topic,
            target_topic=dict(zip(setup.source_topics, setup.target_topics, strict=True)).get,
            timeout_seconds=CALL_TIMEOUT_SECONDS,
            transaction_timeout_seconds=settings.transaction_timeout_seconds,
        )

        async def take_over_ids(committed: Collection[TopicPartition]) -> None:
            written = {at_target: copy.partition for at_target, copy in by_target.items()}
            written |= target_writer.routed_last
            await take_over.take(setup.transactional_ids, written, committed=committed)
            # Of what else is written with the copies: brokers take ids of topics only for a whole request.
            dead_letters = target_writer.sending.dead_letters
            own = [TopicPartition(setup.positions_topic, 0), *([dead_letters] if dead_letters else [])]
            found = await leader_topic_ids(target, own, timeout_seconds=CALL_TIMEOUT_SECONDS)
            for partition, topic_id in found.items():
                target_topic_ids[partition.topic] = "" if isinstance(topic_id, KafkaError) else topic_id

        async def routes_by_id(partition: TopicPartition, names: Collection[str]) -> Collection[Route]:
            """Without the id of one of its topics, a request would name all others, too."""
            found = await ask_routes(partition, names)
            there = [
                TopicPartition(route.topic, partition.partition)
                for route in found
                if route.partition_count > partition.partition
            ]
            ids = await leader_topic_ids(target, there, timeout_seconds=CALL_TIMEOUT_SECONDS)
            for written, topic_id in ids.items():
                target_topic_ids[written.topic] = required(topic_id)
            return found

        def unexplained(copy: PartitionCopy, begin: int, end: int) -> None:
            if not copy.shared:
                foreign_writes.suspect(copy.partition, copy.target, begin, end)

        source_reader = SourceReader(
            fetcher=await stack.enter_async_context(RawFetcher(source, fetching, topic_ids=source_topic_ids)),
            copies=copies,
            throttle=throttle,
            read_committed=setup.read_committed,
            clock=clock,
            who_wrote=who_wrote,
            ask_routes=routes_by_id,
            max_buffered_bytes=MAX_BUFFERED_BYTES,
            horizon=horizon_of(setup.settings),
        )
        expressions, at_spark = expressions_of(setup.settings), dict[TopicPartition, AtSpark]()
        if expressions is not None:
            records = changing(expressions)
            transforms = dials.transforms
            assert transforms is not None
            source_reader.change, at_spark = records.change, records.at_spark
            source_reader.dead_letters = DeadLetters(
                topic=records.expressions.dead_letters, connector_name=setup.connector_name
            )
            source_reader.changed_topics = lambda topic: transforms.expressions(topic) is not None
        rounds = Rounds(target, setup.transactional_ids, settings, on_failure=source_reader.arrived.set)
        spans = TaskSpans.of(flow, slot, traceparent=setup.traceparent, clock=clock)
        target_writer = TargetWriter(
            positions_topic=positions_topic,
            source_reader=source_reader,
            copies=copies,
            by_target=by_target,
            take_over=take_over_ids,
            open_transport=lambda: rounds,
            ask_driver=ask_driver,
            syncs=syncs,
            clock=clock,
            random=random.random,
            on_unexplained=unexplained,
            target_throttled=lambda: target.is_throttled,
            on_round=spans.round,
        )
        stack.push_async_callback(target_writer.close)
        await target_writer.open()
        reporter: Reporter
        preserved: PreservedCopies | None = None
        if setup.preserved_writer is not None:
            preserved = _preserved_copies(
                setup,
                flow,
                target=target,
                reads=target_reads,
                settings=settings,
                target_writer=target_writer,
                may_write=may_write,
                spans=spans,
                tell_foreign=lambda partition, write: reporter.add_foreign_write(partition, write),
            )
            source_reader.offer = preserved.offer
        ways: dict[str, Callable[[], Awaitable[None]]] = {
            f"get ready to write to {flow.target}": lambda: prepare_to_produce(
                target, {*setup.target_topics, setup.positions_topic}
            ),
            f"get ready to read from {flow.source}": lambda: prepare_to_fetch(source, setup.source_topics),
        }
        if preserved is not None:
            ways[f"get ready to fill offsets on {flow.target}"] = preserved.writer.holes.open_fillers
        await make_ready(ways)
        reporter = Reporter(
            copies=copies,
            target_writer=target_writer,
            syncs=syncs,
            source_problem=lambda: source_reader.source_problem,
            source_throttled=lambda: source.is_throttled,
            target_throttled=lambda: target.is_throttled,
            clock=clock,
            preserved={} if preserved is None else preserved.by_source,
            late_seconds=settings.request_timeout_seconds,
            at_spark=at_spark,
        )
        foreign_writes = ForeignWrites(
            reader=BatchReader(target_reads, read_committed=True),
            found=reporter.add_foreign_write,
            own_producer_id=None if preserved is None else preserved.writer.identity.producer_id,
        )
        copier = Copier(
            flow=flow,
            dials=dials,
            source=source,
            clock=clock,
            source_reader=source_reader,
            target_writer=target_writer,
            syncs=syncs,
            reporter=reporter,
            foreign_writes=foreign_writes,
            resting=RestingCopies(
                by_target=by_target,
                ends=lambda wanted: list_offsets(target_reads, OffsetSpec.LAST_STABLE, wanted),
                foreign_writes=foreign_writes,
                preserved=preserved,
                on_hidden=target_writer.take_ids_over,
            ),
            copies=copies,
            source_topic_ids=source_topic_ids,
            target_topic_ids=target_topic_ids,
            by_target=by_target,
            throttle=throttle,
            preserved=preserved,
        )
        yield copier


def _copied_topics(
    copies: Mapping[TopicPartition, PartitionCopy],
    source_topic_ids: Mapping[str, str],
    target_topic_ids: Mapping[str, str],
    partition: TopicPartition,
) -> TopicIds | None:
    """None where copies have names of their own: no topic is copied both ways, and syncs are as MM2's."""
    copy = copies.get(partition)
    if copy is None or copy.origins is None:
        return None
    return TopicIds(source_topic_ids[partition.topic], target_topic_ids[copy.target_topic])


def _preserved_copies(
    setup: TaskSetup,
    flow: Flow,
    *,
    target: DataClientPool,
    reads: DataClientPool,
    settings: ProducerSettings,
    target_writer: TargetWriter,
    may_write: Callable[[], bool],
    spans: TaskSpans,
    tell_foreign: Callable[[TopicPartition, ForeignWrite], None],
) -> PreservedCopies:
    """`reads` is a session of the target that may read the copies."""
    clock = target_writer.clock
    named = setup.preserved_writer
    assert named is not None
    tails = CopyTails(reads, writer_id=named.producer_id, timeout_seconds=TAIL_SECONDS)

    markers = None
    if setup.marker_transactional_id:
        markers = LeaderFiller(
            target,
            setup.marker_transactional_id,
            settings,
            reads=reads,
            known_topic=setup.positions_topic,
        )
    return PreservedCopies(
        source_alias=flow.source,
        writer=PreservedWriter(
            session=target,
            settings=settings,
            identity=ProducerIdentity(named.producer_id, named.producer_epoch),
            tails=tails,
            filler=Filler(target, setup.filler_transactional_id, settings, reads=reads),
            markers=markers,
            clock=clock,
            may_write=may_write,
            on_request=spans.append,
        ),
        foreign_write=tails.foreign_write,
        tell_foreign=tell_foreign,
        delete_before=lambda before: delete_records(target, before),
        store_position=target_writer.store_soon,
        is_stored=target_writer.is_stored,
        wake_reader=target_writer.source_reader.wake,
        shares=target_writer.source_reader.shares,
        syncs=target_writer.syncs,
        clock=clock,
        flush_seconds=int(setup.settings["offset.flush.interval.ms"]) / 1000,
        fill_after_seconds=setup.lease_seconds + settings.request_timeout_seconds,
    )
