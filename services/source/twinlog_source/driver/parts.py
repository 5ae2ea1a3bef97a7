"""The parts of a flow's state, which find, decide and record what its topics and partitions need."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinlog.policy.transformed import TopicTransforms
from twinlog_source.driver.driver_moves import DriverMoves
from twinlog_source.partitions.assignments import TaskOrders
from twinlog_source.topics.common_search import CommonLogs
from twinlog_source.topics.copy_modes import CopyModes
from twinlog_source.topics.new_copies import CopyChanges, NewCopies
from twinlog_source.topics.source_ends import SourceLogs
from twinlog_source.topics.start_positions import PositionFinder
from twinlog_source.topics.target_logs import TargetLogs
from twinlog_source.topics.wanted import TargetTopics, WantedTopics

if TYPE_CHECKING:
    from twinlog_source.driver.state import FlowState


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowParts:
    orders: TaskOrders
    wanted: WantedTopics
    finder: PositionFinder
    source_logs: SourceLogs
    target_logs: TargetLogs
    changes: CopyChanges
    modes: CopyModes
    moves: DriverMoves


def assemble_parts(state: "FlowState") -> FlowParts:
    flow, origins = state.flow, state.origins
    transforms = TopicTransforms(flow.transforms, flow.flow.source) if flow.transforms else None
    changes = CopyChanges(rule=flow.offsets, book=state)
    wanted = WantedTopics(
        book=state,
        decisions=state.decisions,
        target_topics=TargetTopics(target=state.target, table=state.table),
        flows=state.flows,
    )
    modes = CopyModes(
        book=state,
        producers=state.ownership.producers,
        new_copies=NewCopies(
            book=state,
            starts=state.starts,
            probe=state.probe,
            common_logs=CommonLogs(
                source=state.source,
                target=state.target,
                read_committed=flow.settings.read_committed,
                clock=state.clock,
            ),
            origins=origins,
            find_producers=state.ownership.find_producers,
        ),
        confirm=state.confirm,
        id_problem=wanted.id_problem,
        transform_problem=state.transform_check.problem_of,
        routes_records=transforms.routes_records if transforms else lambda _: False,
        transform_of=transforms.digest if transforms else lambda _: "",
    )
    return FlowParts(
        orders=TaskOrders(
            table=state.table,
            control=state.control,
            rule=flow.offsets,
            exactly_once=flow.settings.exactly_once,
            keeps_names=origins.keeps_names,
            is_both_ways=origins.is_both_ways,
            weight=flow.weight,
        ),
        wanted=wanted,
        finder=PositionFinder(book=state, starts=state.starts, reset=flow.settings.auto_offset_reset),
        source_logs=SourceLogs(book=state),
        target_logs=TargetLogs(book=state, starts=state.starts),
        changes=changes,
        modes=modes,
        moves=DriverMoves(book=state, changes=changes, modes=modes, confirm=state.confirm),
    )
