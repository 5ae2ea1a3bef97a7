"""What the commands print, from values."""

from typing import Any

import pytest

from twinlog.api.common.v1 import types_pb2
from twinlog.cli import COMMANDS
from twinlog.cli.common.fields import Fields, cells_of
from twinlog.cli.common.location import service_endpoints
from twinlog.cli.decoding import TopicKind, decode, kind_of
from twinlog.cli.status.rows import ClusterRow, FlowRow, InForce, Note, ServiceRow, Status
from twinlog.cli.status.view import (
    CLUSTER,
    FLOW,
    SERVICE,
    as_json,
    tables,
)
from twinlog.cli.verdict.verdict import verdict_of
from twinlog.errors import ConfigError, WireFormatError
from twinlog.model import Record, TopicPartition
from twinlog.policy import DefaultReplicationPolicy
from twinlog.wire.checkpoint import Checkpoint, encode_checkpoint
from twinlog.wire.heartbeat import Heartbeat, encode_heartbeat
from twinlog.wire.offset_sync import OffsetSync, encode_offset_sync
from twinlog.wire.source_offset import encode_source_offset, source_offset_key


def line_of(fields: Fields[Any], row: Any) -> tuple[str, ...]:
    return tuple(cells_of(fields, row))


def in_force_of(status: Status) -> list[tuple[str, ...]]:
    fields, rows = tables(status, verdict_of(status))[3]
    return [line_of(fields, row) for row in rows]


def issues_of(status: Status) -> list[tuple[str, ...]]:
    fields, rows = tables(status, verdict_of(status))[4]
    return [line_of(fields, row) for row in rows]


POLICIES = [DefaultReplicationPolicy()]


HEARTBEAT_KEY = b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"A","targetClusterAlias":"B"}]'
"""Key of a record of Connect's heartbeat connector."""


def _record(key: bytes | None, value: bytes | None) -> Record:
    return Record(offset=7, timestamp_ms=1, key=key, value=value)


def test_lines_are_those_of_mm2s_formatters() -> None:
    sync = OffsetSync(partition=TopicPartition("t1", 3), upstream_offset=1200, downstream_offset=1187)
    checkpoint = Checkpoint(
        group="g1", partition=TopicPartition("A.t1", 3), upstream_offset=1234, downstream_offset=1201
    )
    beat = Heartbeat(source="A", target="B", timestamp_ms=1700000000000)

    lines = [
        decode(TopicKind.OFFSET_SYNC, _record(*encode_offset_sync(sync))).line,
        decode(TopicKind.CHECKPOINT, _record(*encode_checkpoint(checkpoint))).line,
        decode(TopicKind.HEARTBEAT, _record(*encode_heartbeat(beat))).line,
    ]

    assert lines == [
        "OffsetSync{topicPartition=t1-3, upstreamOffset=1200, downstreamOffset=1187}",
        (
            "Checkpoint{consumerGroupId=g1, topicPartition=A.t1-3, upstreamOffset=1234, "
            "downstreamOffset=1201, metadata=}"
        ),
        "Heartbeat{sourceClusterAlias=A, targetClusterAlias=B, timestamp=1700000000000}",
    ]


def test_positions_show_the_next_offset_and_other_records_of_connect_as_they_are() -> None:
    key = source_offset_key("A", TopicPartition("orders", 2))
    position = decode(TopicKind.POSITION, _record(key, encode_source_offset(100)))
    removed = decode(TopicKind.POSITION, _record(key, None))
    other = decode(TopicKind.POSITION, _record(HEARTBEAT_KEY, b'{"offset":0}'))

    assert position.line == "SourceOffset{cluster=A, topicPartition=orders-2, nextOffset=100}"
    assert position.fields == {"cluster": "A", "topic": "orders", "partition": 2, "next_offset": 100}
    assert removed.fields["next_offset"] is None
    assert other.fields["connector"] == "MirrorHeartbeatConnector"


@pytest.mark.parametrize("kind", list(TopicKind))
def test_a_record_of_another_kind_is_a_wire_format_error(kind: TopicKind) -> None:
    with pytest.raises(WireFormatError):
        decode(kind, _record(b"\x00nonsense", b"nonsense"))


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("mm2-offset-syncs.B.internal", TopicKind.OFFSET_SYNC),
        ("A.checkpoints.internal", TopicKind.CHECKPOINT),
        ("heartbeats", TopicKind.HEARTBEAT),
        ("A.heartbeats", TopicKind.HEARTBEAT),
        ("mm2-offsets.A.internal", TopicKind.POSITION),
        ("mm2-configsync.A.internal", TopicKind.JSON),
        ("mm2-failover.A.internal", TopicKind.JSON),
    ],
)
def test_a_topics_name_says_what_it_holds(topic: str, kind: TopicKind) -> None:
    assert kind_of(topic, POLICIES) is kind


def test_twinlogs_own_records_are_shown_as_the_json_that_they_are() -> None:
    shown = decode(TopicKind.JSON, _record(b'["topic","orders"]', b'{"version":1,"state":"ACTIVE"}'))
    assert shown.line == 'Record{key=["topic", "orders"], value={"version": 1, "state": "ACTIVE"}}'
    assert shown.fields == {"key": ["topic", "orders"], "value": {"version": 1, "state": "ACTIVE"}}
    assert decode(TopicKind.JSON, _record(b'["plan"]', None)).fields == {"key": ["plan"], "value": None}


def test_an_ordinary_topic_asks_for_the_kind() -> None:
    with pytest.raises(ConfigError, match="--kind"):
        kind_of("orders", POLICIES)


def test_endpoints_come_from_the_option_else_the_default_port() -> None:
    found = service_endpoints(None, ["source=[::1]:9"])

    assert found["source"] == "[::1]:9"
    assert found["heartbeat"] == "127.0.0.1:17403"
    assert set(found) == {"source", "checkpoint", "heartbeat", "configsync"}


@pytest.mark.parametrize("text", ["sauce=127.0.0.1:1", "source", "source=17401"])
def test_a_wrong_endpoint_names_the_option(text: str) -> None:
    with pytest.raises(ConfigError, match="--endpoint"):
        service_endpoints(None, [text])


def _status() -> Status:
    status = Status(services=[ServiceRow(name="source", endpoint="h:1", health="SERVING", version="1")])
    row = status.flow(types_pb2.Flow(source="A", target="B"))
    row.topics, row.partitions = {"READY": 2, "WAITING": 1}, {"RUNNING": 3, "PAUSED": 1, "FAULTED": 0}
    row.records_per_second, row.bytes_per_second, row.lag_records = 12345.6, 2_500_000.0, 0
    row.lag_seconds, row.last_copied_age_seconds, row.records = 0.0, 3.2, 7
    row.caught_up_in_seconds = 0.0
    row.path, row.delay_seconds = "ALIVE", 0.123
    row.group_count, row.groups = 1, {"EXACT": 3}
    row.proofs, row.proven_age_seconds = {"EQUAL": 3, "DIFFERENT": 1}, 300.0
    row.source_ends_age_seconds, row.source_written_age_seconds = 1.0, 240.0
    return status


def test_a_flow_is_one_row() -> None:
    row = _status().flows["A->B"]
    cells = line_of(FLOW, row)

    assert cells == (
        "A->B",
        "2 (1 waiting)",
        "1 paused, 3 running",
        "12,346",
        "2.5",
        "0",
        "0 s",
        "yes",
        "3 s ago",
        "0.12 s",
        "3 exact",
        "1 different, 3 equal, 5 min ago",
        "silent 4 min",
    )


def test_what_nobody_said_is_a_dash_and_never_a_zero() -> None:
    assert line_of(FLOW, FlowRow(flow="A->B")) == ("A->B", *["-"] * 12)


def test_a_lag_that_is_not_known_shows_what_was_known_last_and_how_old_that_is() -> None:
    row = FlowRow(flow="A->B", records=0, last_known_lag_records=1040, source_ends_age_seconds=185.0)
    assert line_of(FLOW, row)[5:7] == ("? (1,040 3 min ago)", "?")
    row = FlowRow(flow="A->B", records=0, last_known_lag_records=0)
    assert line_of(FLOW, row)[5] == "?", "never 0 before the first look"


def test_a_flow_says_when_it_will_have_caught_up() -> None:
    row = FlowRow(flow="A->B", records=0, lag_records=90_000, caught_up_in_seconds=330.0)
    assert line_of(FLOW, row)[7] == "in 6 min"
    row.caught_up_in_seconds = None
    assert line_of(FLOW, row)[7] == "?", "its lag does not shrink"


@pytest.mark.parametrize(
    ("read", "written", "shown"), [(1.0, 2.0, "write"), (1.0, None, "silent"), (40.0, 2.0, "?")]
)
def test_producers_write_are_silent_or_it_is_not_known(
    read: float, written: float | None, shown: str
) -> None:
    row = FlowRow(flow="A->B", source_ends_age_seconds=read, source_written_age_seconds=written)
    assert line_of(FLOW, row)[-1] == shown


def test_a_delay_of_long_ago_is_not_shown_as_the_delay_of_now() -> None:
    row = FlowRow(flow="A->B", path="UNKNOWN", delay_seconds=0.01, heartbeat_age_seconds=179.0)
    assert line_of(FLOW, row)[9] == "? (0.01 s, 3 min ago)"


def test_a_cut_path_shows_how_long_it_is_silent() -> None:
    row = FlowRow(flow="A->B", path="SILENT", delay_seconds=0.1, heartbeat_age_seconds=42.4)
    assert line_of(FLOW, row)[9] == "silent 42 s"


@pytest.mark.parametrize(
    ("seen_by", "cell"),
    [
        ({"source": True, "heartbeat": True}, "yes"),
        ({"source": False, "heartbeat": False}, "no"),
        ({"source": True, "heartbeat": False}, "not by heartbeat"),
        ({"source": None, "heartbeat": True}, "yes"),
        ({"source": None}, "-"),
    ],
)
def test_a_cluster_shows_who_does_not_reach_it(seen_by: dict[str, bool | None], cell: str) -> None:
    assert line_of(CLUSTER, ClusterRow(alias="A", seen_by=seen_by)) == ("A", cell)


def test_cluster_states_of_all_services_meet_in_one_row() -> None:
    status = _status()
    reachable = types_pb2.ClusterStatus(alias="A", reachable=True)
    away = types_pb2.ClusterStatus(alias="A", reason="KAFKA_UNAVAILABLE", message="refused")
    unknown = types_pb2.ClusterStatus(alias="A", reason="UNKNOWN", message="not looked at yet")
    for service, answer in (("source", reachable), ("heartbeat", away), ("checkpoint", unknown)):
        status.add_clusters(service, [answer, answer])

    row = status.clusters["A"]
    assert row.seen_by == {"source": True, "heartbeat": False, "checkpoint": None}
    assert row.notes == [Note(service="heartbeat", reason="KAFKA_UNAVAILABLE", message="refused")]


def test_notes_gather_every_reason() -> None:
    status = _status()
    status.services.append(
        ServiceRow(name="heartbeat", endpoint="h:2", reason="PEER_UNAVAILABLE", message="refused")
    )
    status.flows["A->B"].notes.append(Note(service="configsync", reason="SAME_CLUSTER", message="same"))
    status.clusters["B"] = ClusterRow(
        alias="B",
        seen_by={"source": False, "checkpoint": False, "configsync": True},
        notes=[
            Note(service=service, reason="KAFKA_UNAVAILABLE", message="away")
            for service in ("source", "checkpoint")
        ],
    )

    assert issues_of(status) == [
        ("A->B", "SAME_CLUSTER", "configsync: same"),
        ("B", "KAFKA_UNAVAILABLE", "checkpoint, source: away"),
        ("heartbeat", "PEER_UNAVAILABLE", "refused"),
        ("A->B", "PAUSED", "1 partition is PAUSED (`twinlog partitions 'A->B' --trouble`)"),
    ]
    assert not status.all_serving
    assert line_of(SERVICE, status.services[1]) == ("heartbeat", "h:2", "DOWN", "-", "-")


def test_a_port_that_is_open_to_everybody_is_said_in_each_status() -> None:
    status = _status()
    status.services.append(
        ServiceRow(name="heartbeat", endpoint="h:2", health="SERVING", security="insecure")
    )
    (about, reason, message) = issues_of(status)[-1]
    assert (about, reason) == ("heartbeat", "INSECURE")
    assert "twinlog.insecure" in message
    assert as_json(status)["services"][-1]["security"] == "insecure"


def test_what_is_in_force_says_who_and_since_when() -> None:
    status = _status()
    status.flows["A->B"].in_force += [
        InForce(kind="PAUSE", about="A->B t-3", message="paused", by="ann@h", since="2026-01-01T00:00:00Z"),
        InForce(kind="LIMIT", about="A->B", message="limited to 1.0 MB/s"),
    ]
    assert in_force_of(status) == [
        ("PAUSE", "A->B t-3", "paused, by ann@h since 2026-01-01T00:00:00Z"),
        ("LIMIT", "A->B", "limited to 1.0 MB/s"),
    ]


def test_every_command_has_a_summary_that_fits_its_line() -> None:
    for name, entry in COMMANDS.items():
        assert entry.summary.endswith("."), name
        assert ":" in entry.target, name
