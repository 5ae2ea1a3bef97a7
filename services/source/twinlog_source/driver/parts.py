"""The parts of a flow's state, which find, decide and record what its topics and partitions need."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from twinlog.clock import Clock
from twinlog.errors import TwinlogError
from twinlog.kafka.ports import KafkaCluster
from twinlog.service.feeds.registry import Decisions
from twinlog_source.config import SourceFlow
from twinlog_source.driver.driver_moves import DriverMoves
from twinlog_source.log.gaps import Gap
from twinlog_source.log.journal import Journal
from twinlog_source.log.ledger import Ledger
from twinlog_source.log.positions import PositionsLog
from twinlog_source.log.producers import Producers
from twinlog_source.log.topic_facts import TopicFacts
from twinlog_source.partitions.assignments import TaskOrders
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.preserved.target_probe import TargetProbe
from twinlog_source.topics.common_logs import CommonLogs
from twinlog_source.topics.copy_changes import CopyChanges
from twinlog_source.topics.copy_modes import CopyModes
from twinlog_source.topics.new_copies import NewCopies
from twinlog_source.topics.origins import Origins
from twinlog_source.topics.position_finder import PositionFinder
from twinlog_source.topics.source_logs import SourceLogs
from twinlog_source.topics.start_positions import StartPositions
from twinlog_source.topics.target_limits import TargetLimits
from twinlog_source.topics.target_logs import TargetLogs
from twinlog_source.topics.wanted import WantedTopics


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowParts:
    ledger: Ledger
    orders: TaskOrders
    marks: TopicFacts
    wanted: WantedTopics
    finder: PositionFinder
    source_logs: SourceLogs
    target_logs: TargetLogs
    changes: CopyChanges
    modes: CopyModes
    origins: Origins
    moves: DriverMoves


def assemble_parts(
    *,
    flow: SourceFlow,
    decisions: Decisions,
    source: KafkaCluster,
    target: KafkaCluster,
    positions: PositionsLog,
    starts: StartPositions,
    journal: Journal,
    producers: Producers,
    probe: TargetProbe,
    table: PartitionTable,
    on_gap: Callable[[Gap], None],
    confirm: Callable[[], Awaitable[None]],
    origins: Origins,
    transform_problem: Callable[[str], TwinlogError | None],
    clock: Clock,
    flows: int,
) -> FlowParts:
    """`flows` is the number of flows in the process. `confirm` raises when another process has claimed the
    flow."""
    control, exactly_once = positions.control, flow.settings.exactly_once
    ledger = Ledger(flow=flow.flow, journal=journal, positions=positions, on_gap=on_gap)
    marks = TopicFacts(flow=flow.flow, control=control, journal=journal)
    changes = CopyChanges(rule=flow.offsets, table=table, marks=marks, journal=journal, clock=clock)
    wanted = WantedTopics(
        flow=flow.flow,
        decisions=decisions,
        source=source,
        positions=positions,
        table=table,
        limits=TargetLimits(target=target, table=table),
        clock=clock,
        flows=flows,
    )
    modes = CopyModes(
        rule=flow.offsets,
        exactly_once=exactly_once,
        table=table,
        marks=marks,
        journal=journal,
        ledger=ledger,
        producers=producers,
        probe=probe,
        new_copies=NewCopies(
            rule=flow.offsets,
            exactly_once=exactly_once,
            marks=marks,
            starts=starts,
            source=source,
            target=target,
            probe=probe,
            common_logs=CommonLogs(
                source=source,
                target=target,
                read_committed=flow.settings.read_committed,
                clock=clock,
            ),
            is_both_ways=origins.is_both_ways,
        ),
        confirm=confirm,
        id_problem=wanted.id_problem,
        transform_problem=transform_problem,
        clock=clock,
    )
    return FlowParts(
        ledger=ledger,
        orders=TaskOrders(
            table=table,
            control=control,
            rule=flow.offsets,
            exactly_once=exactly_once,
            keeps_names=origins.keeps_names,
            is_both_ways=origins.is_both_ways,
        ),
        marks=marks,
        wanted=wanted,
        finder=PositionFinder(
            table=table,
            positions=positions,
            starts=starts,
            marks=marks,
            reset=flow.settings.auto_offset_reset,
            clock=clock,
        ),
        source_logs=SourceLogs(
            table=table, marks=marks, positions=positions, journal=journal, ledger=ledger, clock=clock
        ),
        target_logs=TargetLogs(
            target=target,
            table=table,
            marks=marks,
            positions=positions,
            journal=journal,
            ledger=ledger,
            starts=starts,
            clock=clock,
        ),
        changes=changes,
        modes=modes,
        origins=origins,
        moves=DriverMoves(
            flow=flow.flow,
            table=table,
            journal=journal,
            ledger=ledger,
            changes=changes,
            modes=modes,
            confirm=confirm,
            clock=clock,
        ),
    )
