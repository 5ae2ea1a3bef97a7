"""What `twinlog explain topic` says of a copy: its offsets, and what is wrong with it."""

import contextvars
from collections.abc import Sequence

import pytest
from google.protobuf.message import Message
from typer.testing import CliRunner

from twinlog.api.common.v1.types_pb2 import ClusterStatus, Flow, TopicPartition
from twinlog.api.configsync.v1 import configsync_service_pb2 as configsync
from twinlog.api.source.v1 import source_service_pb2 as source_pb
from twinlog.api.source.v1.source_service_pb2 import FlowStatus, PartitionStatus, Pause, Scope
from twinlog.cli import app
from twinlog.cli.configsync.explain import (
    _how_to_include,
    because,
    changed_words,
    of_kafka,
    offsets_document,
    offsets_words,
    standing_words,
    trouble_lines,
)
from twinlog.errors import TwinlogError
from twinlog.kafka.codes import ErrorCode
from twinlog.reasons import KAFKA
from unit.cases import about
from unit.cli.snapshots.recorded import Recorded, run

FLOW = FlowStatus(flow=Flow(source="A", target="B"))
KEEPS = PartitionStatus(offsets="preserved", offsets_since=3)
OWN = PartitionStatus(
    source=TopicPartition(topic="t"), offsets="translated", offsets_reason="FILL_TOO_LARGE", offsets_since=0
)


def test_one_word_says_it_where_all_partitions_are_alike() -> None:
    assert offsets_words([KEEPS, KEEPS]) == "preserved"
    assert offsets_words([OWN]) == "translated: FILL_TOO_LARGE"
    assert offsets_words([KEEPS, OWN, KEEPS]) == "2 preserved, 1 translated: FILL_TOO_LARGE"


def test_nothing_is_said_of_what_is_not_known_or_not_decided() -> None:
    assert (offsets_words(None), offsets_document(None)) == ("", None)
    assert offsets_words([PartitionStatus()]) == ""


def test_what_changes_its_records_is_said_with_the_offset_from_which_on() -> None:
    def changed(number: int, transform: str, since: int) -> PartitionStatus:
        partition = TopicPartition(topic="t", partition=number)
        return PartitionStatus(source=partition, transform=transform, transform_since=since)

    assert changed_words(None) == changed_words([OWN]) == ""
    assert changed_words([changed(0, "f0", 7), changed(1, "f0", 7)]) == "from 7"
    assert changed_words([changed(1, "", 9), changed(0, "f0", 7)]) == "0 from 7, 1 no more from 9"


def test_programs_get_each_partition() -> None:
    assert offsets_document([OWN]) == [
        {
            "partition": 0,
            "offsets": "translated",
            "offsets_reason": "FILL_TOO_LARGE",
            "offsets_since": 0,
            "transform": "",
            "transform_since": None,
            "state": "UNSPECIFIED",
            "reason": "",
            "message": "",
        }
    ]


def test_the_state_and_what_is_left_come_first() -> None:
    runs = PartitionStatus(state=source_pb.PARTITION_STATE_RUNNING, lag_records=0)
    paused = PartitionStatus(state=source_pb.PARTITION_STATE_PAUSED, lag_records=1_700)
    assert standing_words(None) == standing_words([]) == ""
    assert standing_words([runs, runs]) == "RUNNING, 0 behind"
    assert standing_words([paused, runs, paused]) == "2 PAUSED, 1 RUNNING; 3,400 behind"
    filtered = PartitionStatus(
        state=source_pb.PARTITION_STATE_RUNNING, lag_records=0, left_out_records={"FILTERED": 600}
    )
    assert standing_words([filtered, filtered]) == (
        "RUNNING, 0 behind; transforms kept out 1,200 FILTERED"
    ), "its copy has no records, and nothing is wrong"
    unknown = PartitionStatus(state=source_pb.PARTITION_STATE_RUNNING)
    assert standing_words([unknown]) == "RUNNING, behind by an unknown number"


def test_what_to_do_is_said_once_for_partitions_with_one_reason() -> None:
    denied = [
        PartitionStatus(
            source=TopicPartition(topic="orders", partition=index),
            state=source_pb.PARTITION_STATE_FAULTED,
            reason="TOPIC_UNAUTHORIZED",
            message=f"write A.orders-{index}: an ACL for the topic is missing",
        )
        for index in range(3)
    ]
    lines = trouble_lines(denied, FLOW)
    assert [line for line in lines if line.startswith("  do: ")] == lines[-1:]
    assert "DENY" in lines[-1]


def test_the_commands_of_a_remedy_name_the_flow_that_they_are_about() -> None:
    large = PartitionStatus(source=TopicPartition(topic="orders"), reason="RECORD_TOO_LARGE")
    _, remedy = trouble_lines([large], FlowStatus(flow=Flow(source="east", target="west")))
    assert "`twinlog plan 'east->west' --scope configs`" in remedy
    assert "A->B" not in remedy


def test_an_excluded_topic_has_the_command_that_takes_the_pattern_away() -> None:
    flow = Flow(source="A", target="B")
    default = r".*[\-\.]internal"
    command = "to copy it: `twinlog rules remove 'A->B' topics.exclude"
    told = {
        "topics.exclude: pattern 'logs.*'": f"{command} 'logs.*'`, for all that it matches",
        f"topics.exclude: pattern {default!r}; the file has 'x'": (
            f"{command} '{default}'`, for all that it matches"
        ),
        "topics.exclude: pattern 'logs.*'; the file has 'x', a rule of ops replaces it by 'logs.*'": (
            "to copy it: `twinlog rules reset 'A->B' topics.exclude`, back to the value of the file"
        ),
        "its copy would be A.eu.x, the name of a copy from cluster eu: rename or exclude it": None,
        "cluster A: it is away; if it has t, that is not copied: topics.exclude: pattern 'logs.*'": None,
    }
    for rule, line in told.items():
        excluded = configsync.TopicExplanation(
            flow=flow, source_topic="t", verdict=configsync.TOPIC_VERDICT_EXCLUDED, rule=rule
        )
        assert _how_to_include([excluded]) == ([] if line is None else [line])


def test_a_reason_with_two_meanings_has_a_paragraph_for_each() -> None:
    told = CliRunner().invoke(app, ["explain", "reason", "internal"]).stdout
    topic, error = told.split("\n\n")
    assert topic.startswith(
        "INTERNAL: Topics (`twinlog status`, `twinlog explain topic`)\nmeans: it is a topic"
    )
    assert topic.endswith("do:    nothing")
    assert "means: a bug" in error
    assert error.endswith("do:    report it\n")
    one = CliRunner().invoke(app, ["explain", "reason", "LOOP_EXITED"]).stdout
    assert one.startswith("LOOP_EXITED\nmeans: a part")


def test_a_topic_that_is_kept_out_has_the_remedy() -> None:
    verdicts = (configsync.TOPIC_VERDICT_CYCLE, configsync.TOPIC_VERDICT_TOPIC_UNAUTHORIZED)
    kept_out = [configsync.TopicExplanation(source_topic="t", verdict=verdict) for verdict in verdicts]
    cycle, hidden = _how_to_include(kept_out)
    assert "another alias" in cycle
    assert "`twinlog preflight` names the right" in hidden


def test_a_topic_that_waits_for_its_copy_has_the_remedy() -> None:
    refused = configsync.ReplicatedTopic(reason="TOPIC_INVALID", message="create A..x: not allowed")
    pending = configsync.ReplicatedTopic(reason="PLAN_PENDING")
    waiting = [
        configsync.TopicExplanation(
            flow=Flow(source="east", target="west"),
            source_topic="t",
            verdict=configsync.TOPIC_VERDICT_WAITING,
            topic=topic,
        )
        for topic in (refused, pending, None)
    ]
    name, plan = _how_to_include(waiting)
    assert name == "do: give the copy another name with `twinlog.topic.rename`"
    assert "`twinlog plan 'east->west'`" in plan


def test_the_name_of_an_error_of_kafka_leads_to_the_reason() -> None:
    for name in ("UNKNOWN_TOPIC_OR_PARTITION", "UnknownTopicOrPartitionException"):
        told = CliRunner().invoke(app, ["explain", "reason", name]).stdout
        assert told.startswith("TOPIC_UNKNOWN\nmeans: no such topic or partition")
    for reason in KAFKA.reasons:
        for code in reason.codes:
            with about(code):
                assert of_kafka(ErrorCode(code).name) == reason.name
    assert CliRunner().invoke(app, ["explain", "reason", "NONE_OF_KAFKA"]).exit_code == 2


def test_a_topic_that_no_rule_selects_has_the_command_that_selects_it() -> None:
    flow = Flow(source="A", target="B")
    left_out, copied = (
        configsync.TopicExplanation(flow=flow, source_topic="team.x", verdict=verdict)
        for verdict in (configsync.TOPIC_VERDICT_NOT_INCLUDED, configsync.TOPIC_VERDICT_REPLICATED)
    )
    assert _how_to_include([left_out, copied]) == [r"to copy it: `twinlog rules add 'A->B' topics 'team\.x'`"]


def test_what_follows_from_brokers_that_do_not_answer_is_one_cause_with_its_remedy() -> None:
    cluster = ClusterStatus(
        alias="B",
        reachable=True,
        silent_brokers=[2, 3],
        broker_addresses={2: "kafka-2:9092", 3: "kafka-3:9092"},
        partitions_without_leader=7,
    )
    reasons = (
        "HIGH_WATERMARK_BEHIND",
        "KAFKA_TIMEOUT",
        "LEADER_UNAVAILABLE",
        "TARGET_SLOW",
        "RECORD_INVALID",
    )
    stand = [
        PartitionStatus(
            source=TopicPartition(topic="orders", partition=number),
            state=source_pb.PARTITION_STATE_STALLED,
            reason=reason,
            message=f"of {number}",
        )
        for number, reason in enumerate(reasons)
    ]
    cause, other, of_other = trouble_lines(
        stand, FlowStatus(clusters=[ClusterStatus(alias="A", reachable=True), cluster])
    )
    assert cause.startswith(f"orders-0 and 3 more partitions: {', '.join(reasons[:4])}: brokers 2, 3 of B do")
    assert cause.endswith(": start broker 2 at kafka-2:9092, and broker 3 at kafka-3:9092")
    assert other == "orders-4: STALLED RECORD_INVALID: of 4"
    assert of_other.startswith("  do: ")
    away = ClusterStatus(
        alias="B",
        reason="KAFKA_TIMEOUT",
        message="no answer within 5 s",
        broker_addresses={2: "kafka-2:9092"},
    )
    cause, *_ = trouble_lines(stand[1:], FlowStatus(clusters=[away]))
    assert cause.endswith(": B does not answer (no answer within 5 s): start broker 2 at kafka-2:9092")
    assert trouble_lines([], FlowStatus(clusters=[away])) == [cause.partition(": ")[2].partition(": ")[2]]


def test_reasons_are_counted_and_not_the_partitions_that_have_them() -> None:
    stand = [
        PartitionStatus(
            source=TopicPartition(topic="orders", partition=number),
            state=source_pb.PARTITION_STATE_FAULTED,
            reason="RECORD_INVALID",
            message=f"offset {number} of orders-{number}",
        )
        for number in range(5)
    ]
    said, remedy = trouble_lines(stand, FLOW)
    assert said == "orders-0 and 4 more partitions: FAULTED RECORD_INVALID: offset 0 of orders-0"
    assert remedy.startswith("  do: ")


def test_what_others_wrote_and_what_differs_has_its_command() -> None:
    written = PartitionStatus(
        source=TopicPartition(topic="orders"),
        state=source_pb.PARTITION_STATE_RUNNING,
        foreign_records=9,
        foreign_write=source_pb.ForeignWrite(from_offset=5, to_offset=7, producer_id=7),
        proof=source_pb.PartitionProof(verdict="DIFFERENT", differences={"MISSING": 2}),
    )
    foreign, who, differs, verify = trouble_lines([written], FLOW)
    assert foreign == (
        "orders-0: FOREIGN_WRITE 9 of others' records in the copy, the last at 5 to 6 of producer id 7"
    )
    assert "`twinlog foreign`" in who
    assert "`twinlog foreign ack 'A->B'`" in who
    assert differs == "orders-0: DIFFERENT: 2 MISSING"
    assert "`twinlog verify`" in verify


def test_a_pause_has_the_command_that_ends_it() -> None:
    paused = PartitionStatus(
        source=TopicPartition(topic="orders", partition=1),
        state=source_pb.PARTITION_STATE_PAUSED,
        reason="PAUSED_BY_OPERATOR",
        message="by ann",
    )
    flow = Flow(source="A", target="B")
    others = [Scope(flow=flow, source_topic="other"), Scope(flow=flow, source_topic="orders", partition=0)]
    for scope, command in (
        (Scope(flow=flow), "twinlog resume 'A->B'"),
        (Scope(flow=flow, source_topic="orders"), "twinlog resume 'A->B' --topic orders"),
    ):
        told = FlowStatus(pauses=[Pause(scope=each) for each in (*others, scope)])
        assert trouble_lines([paused], told)[1] == f"  do: `{command}`"
    assert "`twinlog pause` lists the pauses" in trouble_lines([paused], FLOW)[1]


def test_a_topic_that_is_named_as_its_copy_is_told_of_as_well_and_once() -> None:
    replicated, counterpart = configsync.TOPIC_VERDICT_REPLICATED, configsync.TOPIC_VERDICT_COUNTERPART
    flow = Flow(source="A", target="B")
    for verdicts in ((counterpart,), (replicated, counterpart)):
        found = [
            configsync.TopicExplanation(flow=flow, source_topic="orders", verdict=verdict)
            for verdict in verdicts
        ]
        recorded = Recorded(
            answers={
                "ExplainTopic": [configsync.ExplainTopicResponse(explanations=found)],
                "ListFlows": [source_pb.ListFlowsResponse(flows=[FlowStatus(flow=flow)])],
                "ListPartitions": [source_pb.ListPartitionsResponse(partitions=[OWN])],
                "ListGaps": [source_pb.ListGapsResponse()],
            }
        )
        text = contextvars.copy_context().run(run, ["explain", "topic", "A.orders"], recorded)
        assert text.count("translated: FILL_TOO_LARGE") == 1
        assert text.count("t-0: UNSPECIFIED") == 1


@pytest.mark.parametrize("is_away", [False, True])
def test_a_copy_that_waits_for_nothing_is_not_said_to_be_well_while_brokers_do_not_answer(
    is_away: bool,
) -> None:
    flow = Flow(source="A", target="B")
    places = {2: "kafka-2:9092", 3: "kafka-3:9092"}
    silent = ClusterStatus(alias="B", reachable=True, silent_brokers=[2, 3], broker_addresses=places)
    away = ClusterStatus(alias="B", reason="KAFKA_UNAVAILABLE", message="refused", broker_addresses=places)
    status = FlowStatus(flow=flow, clusters=[away if is_away else silent])
    idle = PartitionStatus(
        flow=flow,
        source=TopicPartition(topic="idle"),
        state=source_pb.PARTITION_STATE_RUNNING,
        offsets="preserved",
        lag_records=0,
    )
    explained = configsync.TopicExplanation(
        flow=flow, source_topic="idle", verdict=configsync.TOPIC_VERDICT_REPLICATED
    )

    def told(*command: str) -> str:
        answers: dict[str, Sequence[Message] | TwinlogError] = {
            "ExplainTopic": [configsync.ExplainTopicResponse(explanations=[explained])],
            "ListFlows": [source_pb.ListFlowsResponse(flows=[status])],
            "ListPartitions": [source_pb.ListPartitionsResponse(partitions=[idle])],
            "ListGaps": [source_pb.ListGapsResponse()],
        }
        return contextvars.copy_context().run(run, [*command], Recorded(answers=answers))

    start = "start broker 2 at kafka-2:9092, and broker 3 at kafka-3:9092"
    text = told("explain", "topic", "idle")
    assert f"RUNNING, 0 behind; {'B does' if is_away else 'brokers 2, 3 of B do'} not answer" in text
    assert start in text
    trouble = told("partitions", "--trouble")
    assert "no partition that is copied has a problem" in trouble
    assert start in trouble


def test_an_internal_topic_is_said_to_be_left_out_on_purpose_and_a_copy_of_such_a_name_is_not() -> None:
    def told(rule: str) -> list[str]:
        verdict = configsync.TOPIC_VERDICT_INTERNAL
        flow = Flow(source="A", target="B")
        explained = configsync.TopicExplanation(flow=flow, source_topic="t", verdict=verdict, rule=rule)
        return _how_to_include([explained])

    purpose = ["nothing to do: no flow copies an internal topic, nor did MirrorMaker 2"]
    assert told("a checkpoints topic") == purpose
    assert told("its copy would be __consumer_offsets, an internal topic of the target") == []


def test_of_a_long_pattern_a_table_shows_the_beginning() -> None:
    pattern = "|".join(f"old-topic-{number}" for number in range(100))
    rule = f"topics.exclude: pattern {pattern!r}; undo: `twinlog rules reset 'A->B' topics.exclude`"
    shown = because(rule)
    assert len(shown) < 200
    assert shown.startswith("topics.exclude: pattern 'old-topic-0|")
    assert shown.endswith("undo: `twinlog rules reset 'A->B' topics.exclude`")
    assert because("topics: pattern 'orders'") == "topics: pattern 'orders'"
