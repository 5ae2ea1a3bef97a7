"""How partitions look: the worst first, `?` for what is not known, and a table on 80 columns."""

import pytest

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.common.fields import as_json, cells_of, columns_of, table_lines
from twinlog.cli.common.names import shown_seconds
from twinlog.cli.source import partitions as rows
from twinlog.cli.source.partitions import _print_rows
from twinlog.cli.status.rows import outages

NOW_MS = 1_700_000_000_000
FIELDS = rows.partition_fields(NOW_MS)


def status(
    topic: str, state: str = "RUNNING", *, lag: int | None = 0, reason: str = "", oldest_ms: int = 0
) -> pb2.PartitionStatus:
    told = pb2.PartitionStatus(
        flow=types_pb2.Flow(source="A", target="B"),
        source=types_pb2.TopicPartition(topic=topic, partition=3),
        target_topic=f"A.{topic}",
        state=pb2.PartitionState.Value(f"PARTITION_STATE_{state}"),
        position=10_000,
        source_end_offset=-1 if lag is None else 10_000 + lag,
        lag_records=lag,
        reason=reason,
        message="target B has not answered for a while, it is tried again" if reason else "",
    )
    if oldest_ms:
        told.oldest_record_at.FromMilliseconds(oldest_ms)
    return told


def test_a_value_that_only_a_later_release_of_the_service_knows_is_shown_by_its_number() -> None:
    told = status("orders")
    told.state = 99  # type: ignore[assignment]
    told.lane = 98  # type: ignore[assignment]
    document = as_json(FIELDS, told)
    assert (document["state"], document["lane"]) == ("99", "98")
    assert "99" in cells_of(FIELDS, told)


def test_the_worst_come_first_and_those_alike_in_their_order() -> None:
    several = [
        status("a"),
        status("b", "PAUSED", reason="PAUSED_BY_OPERATOR"),
        status("c", reason="TARGET_SLOW"),
        status("d", "STALLED", reason="NO_TASK"),
        status("e", "FAULTED", reason="CORRUPT_BATCH"),
        status("f", "FAULTED", reason="CORRUPT_BATCH"),
    ]
    assert [each.source.topic for each in rows.worst_first(several)] == ["e", "f", "d", "b", "c", "a"]
    assert [each.source.topic for each in several if rows.is_troubled(each)] == ["b", "c", "d", "e", "f"]


def test_a_partition_that_waits_for_a_transaction_that_is_not_open_for_long_is_in_trouble() -> None:
    waits = status("orders")
    waits.message = "waits for an open transaction of the source"
    assert [rows.is_troubled(each) for each in (waits, status("orders"))] == [True, False]


def test_what_is_not_known_is_a_question_mark_for_people_and_null_for_programs() -> None:
    unknown, old = status("a", lag=None), status("b", lag=7, oldest_ms=NOW_MS - 90_000)
    assert rows.LAG.cell(unknown) == "?"
    document = as_json(FIELDS, unknown)
    assert (document["lag_records"], document["lag_seconds"], document["source_end_offset"]) == (None,) * 3
    document = as_json(FIELDS, old)
    assert (document["lag_records"], document["lag_seconds"]) == (7, 90.0)
    assert as_json(FIELDS, status("c", lag=7))["lag_seconds"] is None
    assert as_json(FIELDS, status("d"))["lag_seconds"] == 0.0


def test_when_the_lag_will_be_gone_is_told_where_it_is_known() -> None:
    told = status("a", lag=7)
    assert as_json(FIELDS, told)["caught_up_in_seconds"] is None
    told.caught_up_in.FromMilliseconds(90_500)
    assert as_json(FIELDS, told)["caught_up_in_seconds"] == 90.5
    assert "in 90 s" in cells_of(FIELDS, told)
    told.caught_up_in.FromMilliseconds(0)
    assert "yes" in cells_of(FIELDS, told)


def test_the_next_try_is_told() -> None:
    told = status("a", "BACKOFF", reason="KAFKA_TIMEOUT")
    told.retry_at.FromMilliseconds(NOW_MS + 32_400)
    assert "in 32 s" in cells_of(FIELDS, told)
    assert as_json(FIELDS, told)["retry_at"] == told.retry_at.ToJsonString()


def test_which_offsets_a_copy_has_is_told_once_it_is_decided() -> None:
    told = status("a")
    assert as_json(rows.OFFSETS, told) == {"offsets": None, "offsets_reason": "", "offsets_since": None}
    told.offsets, told.offsets_reason, told.offsets_since = "translated", "COMPACTED", 0
    assert "translated COMPACTED" in cells_of(FIELDS, told)
    document = as_json(FIELDS, told)
    assert (document["offsets"], document["offsets_reason"], document["offsets_since"]) == (
        "translated",
        "COMPACTED",
        0,
    )


@pytest.mark.parametrize("width", [80, 100, 200])
def test_partitions_are_a_table_also_on_a_narrow_terminal(width: int) -> None:
    several = [
        status(f"orders-of-region-{n}", "STALLED", lag=123_456, reason="TARGET_SLOW") for n in range(9)
    ]
    cells = [cells_of(FIELDS, each) for each in several]
    lines = table_lines(columns_of(FIELDS), cells, width=width)
    assert all(len(line) <= width for line in lines)
    assert lines[1].startswith("─"), "a head, not a paragraph for each"
    for kept in ("partition", "state", "lag", "behind", "reason"):
        assert kept in lines[0].split()
    assert ("lane" in lines[0].split()) is (width == 200)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(None, "?"), (0.0, "0 s"), (119.4, "119 s"), (300.0, "5 min"), (9_000.0, "2.5 h"), (200_000.0, "2.3 d")],
)
def test_times_are_told_in_one_unit(seconds: float | None, told: str) -> None:
    assert shown_seconds(seconds) == told


def test_a_proof_that_could_not_be_renewed_says_why() -> None:
    proven = pb2.PartitionProof(verdict="EQUAL", proven_until=120)
    proven.proven_at.FromMilliseconds(NOW_MS)
    away = pb2.PartitionProof(verdict="INCOMPLETE", proven_until=120, reason="KAFKA_TIMEOUT")
    away.proven_at.FromMilliseconds(NOW_MS)
    differs = pb2.PartitionProof(verdict="DIFFERENT", differences={"MISSING": 2}, reason="KAFKA_TIMEOUT")
    assert [rows.proof_words(pb2.PartitionStatus(proof=each)) for each in (proven, away, differs)] == [
        "PROVEN to 120 at 22:13:20Z",
        "PROVEN to 120 at 22:13:20Z, since then INCOMPLETE KAFKA_TIMEOUT",
        "DIFFERENT: 2 MISSING, since then KAFKA_TIMEOUT",
    ]


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (120, "120 ms"),
        (9_999, "9999 ms"),
        (45_200, "45 s"),
        (864_000_000, "10.0 d"),
        (1_795_870_164_688, "?"),
    ],
)
def test_the_delay_of_a_record_without_a_time_of_its_own_is_not_known(milliseconds: int, shown: str) -> None:
    assert rows.shown_delay(milliseconds) == shown


def test_of_many_partitions_with_one_problem_the_first_are_shown_and_the_others_counted() -> None:
    away = [status(f"t{number}", "BACKOFF", reason="KAFKA_TIMEOUT") for number in range(32)]
    paused = [status("clicks", "PAUSED", reason="PAUSED_BY_OPERATOR")] * 2
    shown, more = rows.first_of_each([*away, *paused])
    assert shown == [*away[:5], *paused]
    assert more == {("BACKOFF", "KAFKA_TIMEOUT"): 27}


@pytest.mark.parametrize(
    ("producer_id", "by"), [(7, "producer id 7"), (-1, "a producer without idempotence (id -1)")]
)
def test_who_wrote_into_a_copy_is_told_also_where_the_batch_has_no_producer_id(
    producer_id: int, by: str
) -> None:
    found = status("orders", "RUNNING")
    found.foreign_records = 2
    found.foreign_write.CopyFrom(pb2.ForeignWrite(from_offset=5, to_offset=7, producer_id=producer_id))
    assert by in " ".join(cells_of(FIELDS, found))
    found.foreign_write.to_offset = 6
    assert "the last at 5 of" in " ".join(cells_of(FIELDS, found))


def test_each_problem_is_told_with_its_remedy_once(capsys: pytest.CaptureFixture[str]) -> None:
    faulted = [status(topic, "FAULTED", reason="RECORD_TOO_LARGE") for topic in ("orders", "payments")]
    _print_rows(faulted, trouble=True, few_of_each=True)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("RECORD_TOO_LARGE: ")]
    assert len(lines) == 1
    assert "max.message.bytes" in lines[0]


def test_what_follows_from_a_cluster_is_told_once_with_the_brokers_to_start(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reasons = ("LEADER_UNAVAILABLE", "KAFKA_TIMEOUT", "RECORD_TOO_LARGE")
    away = types_pb2.ClusterStatus(
        alias="B", reason="KAFKA_TIMEOUT", message="no answer", broker_addresses={1: "b1:9092"}
    )
    found = [status("orders", "STALLED", reason=reason) for reason in reasons]
    _print_rows(found, trouble=True, few_of_each=True, silent=outages("source", [away]))
    *_, cluster, other = capsys.readouterr().out.splitlines()
    assert cluster.startswith(
        "LEADER_UNAVAILABLE, KAFKA_TIMEOUT: B does not answer (no answer): start broker 1"
    )
    assert other.startswith("RECORD_TOO_LARGE: ")
