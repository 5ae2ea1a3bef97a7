"""The hand-written requests and responses, against Kafka's layouts."""

import base64
from collections.abc import Mapping
from typing import Any

import pytest
from aiokafka.errors import IncompatibleBrokerVersion

from twinlog.batches import AbortedTransaction, NewRecord, build_batch
from twinlog.kafka.protocol.requests import Fields
from twinlog.kafka.raw.fetch.wire import FetchPart, fetch_request
from twinlog.kafka.raw.produce.wire import PRODUCE, ProduceResponse, SealedBatch, produce_request
from twinlog.model import TopicPartition
from twinlog.testing.broker.codec import write_answer

_PARTS = [
    FetchPart(TopicPartition("a", 0), 100),
    FetchPart(TopicPartition("b", 3), 1 << 40),
    FetchPart(TopicPartition("a", 1), 0),
]


_A, _B = bytes(range(16)), bytes(range(16, 32))
_IDS = {topic: base64.urlsafe_b64encode(raw).decode().rstrip("=") for topic, raw in (("a", _A), ("b", _B))}


def _fetch_by_id(topic_ids: dict[str, str] = _IDS) -> Any:
    return fetch_request(
        [*_PARTS[:2], FetchPart(TopicPartition("a", 258), 7, 9)],
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50_000_000,
        max_partition_bytes=1_000_000,
        read_committed=True,
        rack="r",
        topic_ids=topic_ids,
    )


@pytest.mark.parametrize(("newest", "names"), [(12, (b"\x02a", b"\x02b")), (13, (_A, _B)), (18, (_A, _B))])
def test_topics_with_ids_are_asked_for_by_id(newest: int, names: tuple[bytes, bytes]) -> None:
    """Bytes after FetchRequest.json, versions 12 and 13: compact, and tagged fields after every structure."""

    def partition(number: int, offset: int, most_bytes: int) -> bytes:
        first = number.to_bytes(4) + b"\xff" * 4 + offset.to_bytes(8)
        return first + b"\xff" * 12 + most_bytes.to_bytes(4) + b"\x00"

    agreed = _fetch_by_id().prepare({1: (4, newest)})
    assert (
        b"".join(agreed.pieces)
        == (
            b"\xff\xff\xff\xff"  # no replica
            b"\x00\x00\x01\xf4\x00\x00\x00\x01\x02\xfa\xf0\x80\x01"  # wait, least, most, isolation
            b"\x00\x00\x00\x00\xff\xff\xff\xff"  # no session
            b"\x03"  # two topics
        )
        + (names[0] + b"\x03" + partition(0, 100, 1_000_000) + partition(258, 7, 9) + b"\x00")
        + (names[1] + b"\x02" + partition(3, 1 << 40, 1_000_000) + b"\x00")
        + b"\x01\x02r\x00"  # no forgotten topics, the rack
    )
    version = min(newest, 13)
    assert agreed.header(7, b"c") == b"\x00\x01" + version.to_bytes(2) + b"\x00\x00\x00\x07\x00\x01c\x00"


@pytest.mark.parametrize("topic_ids", [{}, {"a": _IDS["a"]}, {**_IDS, "b": ""}, {**_IDS, "b": "no id"}])
def test_topics_are_asked_for_by_name_unless_the_id_of_each_is_known(topic_ids: dict[str, str]) -> None:
    assert _fetch_by_id(topic_ids).prepare({1: (4, 18)}).header(7, b"")[:4] == b"\x00\x01\x00\x0c"


@pytest.mark.parametrize(("version", "names"), [(12, (b"\x02a", b"\x02b")), (13, (_A, _B))])
def test_answers_with_tagged_fields_are_read(version: int, names: tuple[bytes, bytes]) -> None:
    """Bytes after FetchResponse.json."""
    offsets = (110).to_bytes(8) + (105).to_bytes(8) + (7).to_bytes(8)
    frame = (
        b"\x00\x00\x00\x09"  # correlation id
        b"\x00"  # the header's tagged fields
        b"\x00\x00\x00\x5a\x00\x00\x00\x00\x00\x00"  # throttle time, error code, session
        b"\x04"  # three topics
        + names[0]
        + b"\x03"
        + (b"\x00\x00\x00\x00\x00\x00" + offsets)
        + (
            b"\x03"
            + (9).to_bytes(8)
            + (3).to_bytes(8)
            + b"\x00"
            + (8).to_bytes(8)
            + (1).to_bytes(8)
            + b"\x00"
        )
        + (b"\x00\x00\x00\x02" + b"\xc9\x01" + b"z" * 200)
        + b"\x01\x01\x02??"  # tagged fields
        + (b"\x00\x00\x01\x02\x00\x64" + b"\xff" * 24 + b"\x00" + b"\xff" * 4 + b"\x00" + b"\x00")
        + b"\x00"
        + (b"\x02x" if version == 12 else bytes(16))  # nobody asked for it
        + (b"\x02" + b"\x00" * 6 + offsets + b"\x01\xff\xff\xff\xff\x02!\x00" + b"\x00")
        + names[1]
        + (b"\x02" + b"\x00\x00\x00\x03\x00\x00" + offsets + b"\x01\xff\xff\xff\xff\x01\x00" + b"\x00")
        + b"\x00"
    )
    agreed = _fetch_by_id().prepare({1: (4, version)})
    read = agreed.read(frame, 4)
    assert read.throttle_ms == agreed.throttle_ms == 90
    answers = {each.partition: each for each in read.answers}
    one = answers[TopicPartition("a", 0)]
    assert (one.high_watermark, one.last_stable_offset, one.log_start_offset) == (110, 105, 7)
    assert one.aborted == (AbortedTransaction(9, 3), AbortedTransaction(8, 1))
    assert (one.preferred_replica, bytes(one.records)) == (2, b"z" * 200)
    refused = answers[TopicPartition("a", 258)]
    assert (refused.error_code, refused.aborted, len(refused.records)) == (100, (), 0)
    assert len(answers[TopicPartition("b", 3)].records) == 0
    assert answers.keys() - {TopicPartition("x", 0)} == {
        TopicPartition("a", 0),
        TopicPartition("a", 258),
        TopicPartition("b", 3),
    }


def _part(partition: TopicPartition, header: bytes, records: bytes) -> SealedBatch:
    batch = build_batch([NewRecord(None, None, 0)])._replace(records=records)
    return SealedBatch(partition=partition, batch=batch, header=header)


_PRODUCED = [
    _part(TopicPartition("a", 0), b"head", b"records"),
    _part(TopicPartition("b", 2), b"h", b"r"),
]


def test_topics_are_named_by_their_ids_where_all_ids_are_known() -> None:
    one, other = bytes(range(16)), bytes(range(16, 32))
    ids = {"a": "AAECAwQFBgcICQoLDA0ODw", "b": "EBESExQVFhcYGRobHB0eHw"}

    def version(
        known: Mapping[str, str], transactional_id: str | None, *, adds_partitions: bool, newest: int = 13
    ) -> int:
        agreed = produce_request(
            _PRODUCED,
            transactional_id=transactional_id,
            timeout_ms=1,
            adds_partitions=adds_partitions,
            topic_ids=known,
        ).prepare({0: (3, newest)})
        pieces, chosen = b"".join(agreed.pieces), int.from_bytes(agreed.header(1, b"c")[2:4])
        assert (one in pieces and other in pieces) == (chosen == 13)
        return chosen

    assert version(ids, "id", adds_partitions=True) == 13
    assert version(ids, None, adds_partitions=False) == 13
    assert version(ids, "id", adds_partitions=True, newest=12) == 12
    assert version(ids, None, adds_partitions=False, newest=9) == 9
    assert version(ids, "id", adds_partitions=False) == 9, "brokers would add the partitions"
    assert version({"a": ids["a"], "b": ""}, "id", adds_partitions=True) == 12
    agreed = produce_request(_PRODUCED, transactional_id=None, timeout_ms=1, topic_ids=ids).prepare(
        {0: (3, 13)}
    )
    refused = b"\x02" + other + b"\x02" + b"\x00\x00\x00\x02\x00\x64" + b"\xff" * 24 + b"\x01\x00\x00\x00"
    (answer,) = agreed.read(b"\x00" * 5 + refused + b"\x00" * 6, 4).answers
    assert answer == (TopicPartition("b", 2), 100, -1, "", None)


def _read_produced(throttle_ms: int = 0, **partitions: Fields) -> ProduceResponse:
    """What is read of an answer that says this of a partition of each topic."""
    usual = {"log_append_time": -1, "log_start_offset": 0, "record_errors": (), "error_message": None}
    responses = [
        {"name": topic, "partition_responses": [{**usual, **each}]} for topic, each in partitions.items()
    ]
    answer = {"responses": responses, "throttle_time": throttle_ms}
    agreed = produce_request(_PRODUCED, transactional_id=None, timeout_ms=1).prepare({PRODUCE: (0, 9)})
    assert agreed.pieces[0] == b"\0", "no transactional id"
    read = agreed.read(write_answer(PRODUCE, 9, 1, answer), 8)
    assert read.throttle_ms == agreed.throttle_ms == throttle_ms
    return read


def test_produce_responses_are_read() -> None:
    taken = {"index": 0, "error_code": 0, "base_offset": 1234}
    refused = {"index": 2, "error_code": 10, "base_offset": -1}
    answers = _read_produced(a=taken, b={**refused, "error_message": "too large"}).answers
    assert answers == [
        (TopicPartition("a", 0), 0, 1234, "", None),
        (TopicPartition("b", 2), 10, -1, "too large", None),
    ]
    both = [
        {"batch_index": 5, "batch_index_error_message": "no key either"},
        {"batch_index": 3, "batch_index_error_message": "no key"},
    ]
    (answer,) = _read_produced(70, b={**refused, "record_errors": both, "error_message": "records"}).answers
    assert (answer.message, answer.record) == ("no key", 3)
    (answer,) = _read_produced(b={**refused, "record_errors": both[1:]}).answers
    assert (answer.message, answer.record) == ("no key", 3)


@pytest.mark.parametrize("broker_versions", [{}, {1: (0, 11)}, {1: (13, 20)}])
def test_a_broker_without_a_common_version_is_named(broker_versions: dict[int, tuple[int, int]]) -> None:
    with pytest.raises(IncompatibleBrokerVersion, match="request 1, 12 to 12 are needed"):
        _fetch_by_id({}).prepare(broker_versions)
