"""The record of a move of a large flow: Kafka takes records of at most 1 MiB, whatever their compression."""

import json
from dataclasses import replace
from typing import Any

import pytest

from twinlog.acl_rights import ALLOW
from twinlog.errors import WireFormatError
from twinlog.kafka.ports import AclBinding
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.write_blocks import fence_of
from twinlog_checkpoint.journal.moves_log import MoveJournal, failover_topic
from twinlog_checkpoint.journal.record import MoveKind, MoveRecord, Step
from twinlog_checkpoint.journal.record_format import decode_record, encode_record
from twinlog_checkpoint.journal.record_parts import PART_BYTES, pack, part_key, part_of, unpack
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from twinlog_checkpoint.moves.running.run_record import begun, finished, given_up
from unit.checkpoint.checkpoint_rig import A_TO_B, B_TO_A

LARGEST_BYTES = 1_048_576
"""Kafka's max.request.size."""
TOPICS = 7_000
"""Too many for one record."""


def topics(count: int) -> list[str]:
    return [f"payments.domain-{number:05}.events.v1" for number in range(count)]


def grants(count: int) -> tuple[AclBinding, ...]:
    return tuple(
        AclBinding(
            resource_type="TOPIC",
            resource_name=f"A.{topic}",
            pattern_type="LITERAL",
            principal="User:payments-service",
            host="*",
            operation="WRITE",
            permission=ALLOW,
        )
        for topic in topics(count)
    )


def first_run(count: int) -> MoveRecord:
    record = begun(MoveKind.FAILOVER, None, (), MoveOptions(fence=True), run_id="first", now_ms=1)
    fences = tuple(map(fence_of, topics(count)))
    return replace(record, fences=fences, done=(Step.CHECK, Step.FENCE))


def second_run(count: int) -> MoveRecord:
    done = finished(first_run(count), (), (), MoveOptions(), now_ms=2)
    return begun(MoveKind.FAILOVER, done, (), MoveOptions(fence=True), run_id="second", now_ms=3)


def journal_on(cluster: FakeCluster) -> MoveJournal:
    return MoveJournal(flow=A_TO_B, cluster=cluster, replication_factor=1)


def kept_keys(cluster: FakeCluster) -> set[bytes]:
    """The keys that compaction keeps."""
    newest: dict[bytes, bytes | None] = {}
    for record in cluster.records(TopicPartition(failover_topic(A_TO_B), 0)):
        assert record.key is not None
        newest[record.key] = record.value
    return {key for key, value in newest.items() if value is not None}


@pytest.mark.parametrize(("run", "count"), [(second_run, 3_100), (first_run, 6_100), (second_run, 50_000)])
async def test_a_run_of_any_number_of_topics_is_recorded_and_read(run: Any, count: int) -> None:
    record = replace(run(count), former_fences=(fence_of("on-the-other-side"),), earlier_chains=("earlier",))
    cluster = FakeCluster("B")
    await journal_on(cluster).store(record)
    sizes = [len(each.value or b"") for each in cluster.records(TopicPartition(failover_topic(A_TO_B), 0))]
    assert max(sizes) < LARGEST_BYTES
    assert await journal_on(cluster).load() == record


@pytest.mark.parametrize("unfinished", [None, frozenset(), frozenset({"orders-app", "é"})])
async def test_the_groups_that_a_run_has_not_finished_are_recorded_and_read(
    unfinished: frozenset[str] | None,
) -> None:
    cluster = FakeCluster("B")
    record = replace(first_run(0), unfinished=unfinished, unfinished_before=unfinished)
    await journal_on(cluster).store(record)
    assert await journal_on(cluster).load() == record


async def test_grants_of_any_number_of_topics_are_recorded_and_read() -> None:
    cluster = FakeCluster("B")
    record = replace(first_run(0), grants=grants(TOPICS), former_grants=grants(10))
    await journal_on(cluster).store(record)
    assert await journal_on(cluster).load() == record


def test_a_record_that_fits_is_written_as_earlier_releases_read_it() -> None:
    _, value, parts = encode_record(A_TO_B, second_run(2_000))
    fields = json.loads(value)
    assert (fields["format"], parts) == (1, {})
    assert fields["fences"][0] == {
        "resource_type": "TOPIC",
        "resource_name": topics(1)[0],
        "pattern_type": "LITERAL",
        "principal": "User:*",
        "host": "*",
        "operation": "WRITE",
        "permission": "DENY",
    }
    assert fields["fences"] == fields["fences_before"]
    assert decode_record(value) == second_run(2_000)


def test_a_record_of_an_earlier_release_is_read_however_many_fences_it_has() -> None:
    fences = [
        {
            "resource_type": "TOPIC",
            "resource_name": topic,
            "pattern_type": "LITERAL",
            "principal": "User:*",
            "host": "*",
            "operation": "WRITE",
            "permission": "DENY",
        }
        for topic in topics(6_000)
    ]
    value = {
        "format": 1,
        "run_id": "r",
        "kind": "failover",
        "state": "RUNNING",
        "groups": [],
        "by": "ann",
        "started_ms": 1,
        "finished_ms": None,
        "done": ["CHECK", "FENCE"],
        "fences": fences,
        "former_fences": fences[:2],
        "fences_before": fences[:3],
        "moved": [],
        "stood_at": {},
        "final_offsets": [],
    }
    record = decode_record(json.dumps(value).encode())
    assert record.fences == tuple(map(fence_of, topics(6_000)))
    assert (record.former_fences, record.fences_before) == (record.fences[:2], record.fences[:3])
    assert record.grants == record.former_grants == ()


def test_a_large_record_is_refused_by_earlier_releases_and_still_tells_configsync_its_state() -> None:
    """They read format 1 only, and must not take a record for one without fences."""
    _, value, _ = encode_record(A_TO_B, second_run(TOPICS))
    fields = json.loads(value)
    assert fields["format"] == 2
    assert (fields["kind"], fields["state"], fields["aborted"], fields["on_target"]) == (
        "failover",
        "RUNNING",
        False,
        True,
    )


async def test_parts_that_no_record_names_any_more_are_removed_after_the_record_was_replaced() -> None:
    cluster = FakeCluster("B")
    await journal_on(cluster).store(second_run(TOPICS))
    journal = journal_on(cluster)
    last = await journal.load()
    assert last is not None
    await journal.store(replace(last, former_fences=tuple(map(fence_of, topics(2 * TOPICS)))))
    before = kept_keys(cluster)
    await journal.store(replace(last, fences=(), fences_before=()))
    records = cluster.records(TopicPartition(failover_topic(A_TO_B), 0))
    assert len(before) > 1
    assert len(kept_keys(cluster)) == 1
    first_removed = next(number for number, each in enumerate(records) if each.value is None)
    assert any(json.loads(each.value or b"{}").get("fences") == [] for each in records[:first_removed])


async def test_a_run_that_was_killed_between_parts_and_record_leaves_the_record_before() -> None:
    cluster = FakeCluster("B")
    await journal_on(cluster).store(second_run(TOPICS))
    _, _, parts = encode_record(A_TO_B, first_run(2 * TOPICS))
    async with cluster.writer() as writer:
        for name, value in parts.items():
            at = TopicPartition(failover_topic(A_TO_B), 0)
            await writer.append(at, key=part_key(A_TO_B, name), value=value)
    journal = journal_on(cluster)
    assert await journal.load() == second_run(TOPICS)
    await journal.store(second_run(10))
    assert len(kept_keys(cluster)) == 1


def test_a_record_without_one_of_its_parts_is_a_typed_error() -> None:
    _, value, parts = encode_record(A_TO_B, second_run(TOPICS))
    missing = dict(parts)
    missing.popitem()
    with pytest.raises(WireFormatError, match="missing"):
        decode_record(value, missing)


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (b"{}", "WIRE_FORMAT"),
        (b"\xff", "WIRE_FORMAT"),
        (b"[" * 100_000, "WIRE_FORMAT"),
        (b'{"format":1,"items":[7]}', "WIRE_FORMAT"),
        (b'{"format":2,"items":[]}', "WIRE_VERSION"),
    ],
)
def test_a_damaged_part_is_a_typed_error(part: bytes, reason: str) -> None:
    _, value, parts = encode_record(A_TO_B, second_run(TOPICS))
    with pytest.raises(WireFormatError) as refused:
        decode_record(value, dict.fromkeys(parts, part))
    assert refused.value.reason == reason


def test_what_is_added_to_a_list_changes_only_its_last_part() -> None:
    names = topics(20_000)
    before, after = pack(names[:-1]), pack(names)
    assert len(after) > 1
    assert list(before)[:-1] == list(after)[:-1]
    assert unpack(list(after), after) == names
    assert max(map(len, after.values())) < PART_BYTES + 1_000
    assert pack([]) == {}


def test_the_key_of_a_part_names_flow_and_part() -> None:
    assert part_of(A_TO_B, part_key(A_TO_B, "p")) == "p"
    assert part_of(B_TO_A, part_key(A_TO_B, "p")) is None
    assert part_of(A_TO_B, b"\xff") is None


def test_a_large_run_is_given_up_in_no_time() -> None:
    again = replace(second_run(TOPICS), fences=tuple(map(fence_of, topics(TOPICS + 1))))
    assert given_up(again, now_ms=4).fences == tuple(map(fence_of, topics(TOPICS)))
