"""What a flow has left to copy: heartbeats, which are always on their way, never count."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from twinlog.model import TopicPartition
from twinlog_source.driver.instruments import FlowGauges, Seen
from twinlog_source.partitions.events import Begun, EndsSeen, Reported, SourceRecreated, TopicsChosen
from twinlog_source.partitions.orders import PartitionReport, PartitionState, TaskReport
from twinlog_source.partitions.standing import END_VALID_SECONDS, Backlog, FlowFacts, backlog_of, standing_of
from twinlog_source.partitions.table import PartitionTable
from unit.source.partitions.standing_facts import FACTS as STANDING_FACTS

DATA, BEATS = TopicPartition("orders", 0), TopicPartition("heartbeats", 0)
FACTS = replace(STANDING_FACTS, now=10.0, heard_at=lambda _: 9.0)


def flow() -> PartitionTable:
    """A topic with data and one with heartbeats, of both nothing was copied yet."""
    table = PartitionTable(is_heartbeats=lambda topic: topic == "heartbeats")
    table.apply(TopicsChosen(targets={DATA: "A.orders", BEATS: "A.heartbeats"}), 0.0)
    for partition in (DATA, BEATS):
        table.apply(Begun(partition=partition, position=0), 0.0)
    return table


def see(table: PartitionTable, ends: Mapping[TopicPartition, int], at: float) -> None:
    table.apply(EndsSeen(ends=dict(ends), asked_at=at), at)


def backlog(table: PartitionTable, facts: FlowFacts = FACTS) -> Backlog:
    return backlog_of([(row, standing_of(row, facts)) for row in table.rows.values()], facts)


def test_heartbeats_on_their_way_are_no_backlog() -> None:
    table = flow()
    see(table, {DATA: 0, BEATS: 3}, 8.0)
    found = backlog(table)
    assert (found.records, found.last_known_records, found.began_at) == (0, 0, None)
    see(table, {DATA: 40, BEATS: 5}, 9.0)
    assert (backlog(table).records, backlog(table).last_known_records) == (40, 40)


def test_a_backlog_that_is_not_known_of_every_partition_is_not_known() -> None:
    table = flow()
    see(table, {BEATS: 3}, 8.0)
    assert (backlog(table).records, backlog(table).unknown_partitions) == (None, 1)
    see(table, {DATA: 7}, 8.0)
    assert backlog(table, replace(FACTS, positions_known=False)).records is None
    late = replace(FACTS, now=8.0 + END_VALID_SECONDS + 1.0)
    assert (backlog(table, late).records, backlog(table, late).last_known_records) == (None, 7)


def test_producers_write_while_a_log_that_holds_no_heartbeats_grows() -> None:
    table = flow()
    see(table, {DATA: 100, BEATS: 1}, 1.0)
    see(table, {DATA: 100, BEATS: 2}, 2.0)
    assert backlog(table).source_grew_at is None, "the first end says nothing of when it was written"
    see(table, {DATA: 101, BEATS: 3}, 3.0)
    see(table, {DATA: 101, BEATS: 4}, 4.0)
    assert backlog(table).source_grew_at == 3.0


def test_producers_write_also_where_the_task_saw_it_first() -> None:
    table = flow()
    see(table, {DATA: 100}, 1.0)
    report = PartitionReport(partition=DATA, position=100, source_end=105, state=PartitionState.RUNNING)
    table.apply(Reported(slot=0, report=TaskReport(partitions=(report,)), now_ms=1), 6.0)
    assert backlog(table).source_grew_at == 6.0


def test_producers_write_where_a_topic_came_later_and_already_holds_records() -> None:
    new = TopicPartition("invoices", 0)
    table = flow()
    see(table, {DATA: 100, BEATS: 1}, 1.0)
    table.apply(TopicsChosen(targets={DATA: "A.orders", BEATS: "A.heartbeats", new: "A.invoices"}), 2.0)
    see(table, {new: 0}, 3.0)
    assert backlog(table).source_grew_at is None
    table.apply(TopicsChosen(targets={DATA: "A.orders", BEATS: "A.heartbeats"}), 4.0)
    table.apply(TopicsChosen(targets={DATA: "A.orders", BEATS: "A.heartbeats", new: "A.invoices"}), 5.0)
    see(table, {new: 9}, 6.0)
    assert backlog(table).source_grew_at == 6.0


def test_a_topic_that_was_made_again_did_not_grow() -> None:
    table = flow()
    see(table, {DATA: 100}, 1.0)
    table.apply(SourceRecreated(partition=DATA), 2.0)
    see(table, {DATA: 7}, 3.0)
    assert backlog(table).source_grew_at is None


def test_a_flow_has_caught_up_with_its_slowest_partition_and_heartbeats_do_not_count() -> None:
    other = TopicPartition("orders", 1)
    table = flow()
    table.apply(TopicsChosen(targets={DATA: "A.orders", other: "A.orders", BEATS: "A.heartbeats"}), 0.0)
    table.apply(Begun(partition=other, position=0), 0.0)
    for second in range(11):
        see(table, {DATA: 100_000, other: 100_000, BEATS: second + 100}, float(second))
        reports = tuple(
            PartitionReport(
                partition=each, position=pace * second, source_end=end, state=PartitionState.RUNNING
            )
            for each, pace, end in ((DATA, 1000, 100_000), (other, 500, 100_000), (BEATS, 0, second + 100))
        )
        table.apply(Reported(slot=0, report=TaskReport(partitions=reports), now_ms=1), float(second))
    assert backlog(table).caught_up_in_seconds == 190.0
    paused = replace(FACTS, heard_at=lambda _: None, is_paused=lambda partition: partition == DATA)
    assert backlog(table, paused).caught_up_in_seconds is None, "what does not run never catches up"


def test_a_flow_falls_behind_by_what_runs_and_not_by_what_is_paused_or_held_back() -> None:
    other = TopicPartition("orders", 1)
    table = flow()
    table.apply(TopicsChosen(targets={DATA: "A.orders", other: "A.orders"}), 0.0)
    table.apply(Begun(partition=other, position=0), 0.0)

    def at(second: int, reason: str = "") -> None:
        end = 1000 + 100 * second
        see(table, {DATA: end, other: end}, float(second))
        reports = tuple(
            PartitionReport(
                partition=each,
                position=60 * second,
                source_end=end,
                state=PartitionState.RUNNING,
                reason=reason,
                message=reason,
            )
            for each in (DATA, other)
        )
        table.apply(Reported(slot=0, report=TaskReport(partitions=reports), now_ms=1), float(second))

    for second in range(61):
        at(second)
    facts = replace(FACTS, now=60.0, heard_at=lambda _: 60.0)
    assert backlog(table, facts).falls_behind_per_second == 80.0
    assert backlog(table, replace(facts, delay_seconds=60.0)).falls_behind_per_second == 0.0
    at(61, "DELAYED")
    assert backlog(table, replace(facts, now=61.0)).falls_behind_per_second == 0.0
    paused = replace(facts, heard_at=lambda _: None, is_paused=lambda _: True)
    assert backlog(table, paused).falls_behind_per_second == 0.0


def test_a_flow_that_is_delayed_on_purpose_has_caught_up_when_only_young_records_are_left() -> None:
    table = flow()
    see(table, {DATA: 0}, 0.0)
    see(table, {DATA: 40}, 20.0)
    table.apply(TopicsChosen(targets={DATA: "A.orders"}), 20.0)
    report = PartitionReport(partition=DATA, position=0, source_end=40, state=PartitionState.RUNNING)
    table.apply(Reported(slot=0, report=TaskReport(partitions=(report,)), now_ms=1), 20.0)
    facts = replace(FACTS, now=30.0, heard_at=lambda _: 30.0)
    assert backlog(table, facts).caught_up_in_seconds is None
    assert backlog(table, replace(facts, delay_seconds=45.0)).caught_up_in_seconds == 0.0


def test_a_flow_without_a_lag_has_caught_up() -> None:
    table = flow()
    see(table, {DATA: 0, BEATS: 3}, 8.0)
    assert backlog(table).caught_up_in_seconds == 0.0


def test_what_is_overdue_is_what_nobody_holds_back() -> None:
    table = flow()
    see(table, {DATA: 0}, 0.0)
    see(table, {DATA: 40}, 10.0)
    nothing: Any = None
    gauges = FlowGauges(
        flow={"f": "A->B"},
        table=table,
        control=nothing,
        gaps=nothing,
        publish=nothing,
        latencies=nothing,
        record_ages=nothing,
        clock=nothing,
    )

    def overdue(**facts: Any) -> list[float]:
        now = replace(FACTS, now=20.0, heard_at=lambda _: None, **facts)
        flow: Any = SimpleNamespace(gauges=gauges, facts=lambda: now)
        return [seconds for seconds, _ in gauges.overdue(Seen(flow))]

    assert overdue() == [20.0]
    assert overdue(delay_seconds=4.0) == [16.0]
    assert overdue(is_paused=lambda _: True) == [0.0]
