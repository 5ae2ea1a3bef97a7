"""The parts of a flow's state, which find, decide and record what its topics and partitions need."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinlog.policy.transformed import TopicTransforms
from twinlog_source.driver.driver_moves import DriverMoves
from twinlog_source.log.journal import Ledger, TopicIdentities
from twinlog_source.partitions.assignments import TaskOrders
from twinlog_source.topics.common_search import CommonLogs
from twinlog_source.topics.copy_modes import CopyModes
from twinlog_source.topics.new_copies import CopyChanges, NewCopies
from twinlog_source.topics.origins import Origins
from twinlog_source.topics.source_ends import SourceLogs
from twinlog_source.topics.start_positions import PositionFinder
from twinlog_source.topics.target_logs import TargetLogs
from twinlog_source.topics.wanted import TargetTopics, WantedTopics

if TYPE_CHECKING:
    from twinlog_source.driver.state import FlowState


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowParts:
    ledger: Ledger
    orders: TaskOrders
    marks: TopicIdentities
    wanted: WantedTopics
    finder: PositionFinder
    source_logs: SourceLogs
    target_logs: TargetLogs
    changes: CopyChanges
    modes: CopyModes
    origins: Origins
    moves: DriverMoves


def assemble_parts(state: "FlowState") -> FlowParts:
    flow, table, journal, clock = state.flow, state.table, state.journal, state.clock
    positions, source, target, origins = state.positions, state.source, state.target, state.origins
    control, exactly_once = positions.control, flow.settings.exactly_once
    transforms = TopicTransforms(flow.transforms, flow.flow.source) if flow.transforms else None
    ledger = Ledger(flow=flow.flow, journal=journal, positions=positions, on_gap=state.on_gap)
    marks = TopicIdentities(flow=flow.flow, control=control, journal=journal)
    changes = CopyChanges(rule=flow.offsets, table=table, marks=marks, journal=journal, clock=clock)
    wanted = WantedTopics(
        flow=flow.flow,
        decisions=state.decisions,
        source=source,
        positions=positions,
        table=table,
        target_topics=TargetTopics(target=target, table=table),
        clock=clock,
        flows=state.flows,
    )
    modes = CopyModes(
        rule=flow.offsets,
        exactly_once=exactly_once,
        table=table,
        marks=marks,
        journal=journal,
        ledger=ledger,
        producers=state.ownership.producers,
        probe=state.probe,
        new_copies=NewCopies(
            rule=flow.offsets,
            exactly_once=exactly_once,
            marks=marks,
            starts=state.starts,
            source=source,
            target=target,
            probe=state.probe,
            common_logs=CommonLogs(
                source=source,
                target=target,
                read_committed=flow.settings.read_committed,
                clock=clock,
            ),
            is_both_ways=origins.is_both_ways,
            read_origins=origins.read,
        ),
        confirm=state.confirm,
        id_problem=wanted.id_problem,
        transform_problem=state.transform_check.problem_of,
        routes_records=transforms.routes_records if transforms else lambda _: False,
        transform_of=transforms.digest if transforms else lambda _: "",
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
            weight=flow.weight,
        ),
        marks=marks,
        wanted=wanted,
        finder=PositionFinder(
            table=table,
            positions=positions,
            starts=state.starts,
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
            starts=state.starts,
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
            confirm=state.confirm,
            clock=clock,
        ),
    )
