"""Damaged answers of brokers: each decoder reads them, or ends the connection."""

import contextlib
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.kafka.protocol import metadata
from twinlog.kafka.protocol.requests import API_KEYS, SchemaRequest
from twinlog.kafka.raw.fetch import wire as fetch_wire
from twinlog.kafka.raw.produce import wire as produce_wire
from twinlog.kafka.raw.transactions import wire as transaction_wire
from twinlog.testing.broker.codec import write_answer
from unit.wire.damage import damaged


def compact(text: bytes) -> bytes:
    return bytes((len(text) + 1,)) + text


def plain(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def metadata_reader(version: int) -> Callable[[bytes], object]:
    return lambda data: metadata.read_metadata(data, 0, version)


def metadata_response(version: int) -> bytes:
    """A broker, and a topic of one partition with one replica."""
    one, tags, node = b"\x02", b"\0", struct.pack(">i", 1)
    nodes = one + node
    pieces = [struct.pack(">i", 0), one, node, compact(b"h"), struct.pack(">i", 9092), compact(b"r")]
    pieces += [tags, compact(b"c"), node, one, struct.pack(">h", 0), compact(b"t")]
    pieces += [bytes(17 if version >= 10 else 1), one, struct.pack(">hii", 0, 0, 1)]
    return b"".join([*pieces, struct.pack(">i", 3), nodes, nodes, nodes, tags, struct.pack(">i", 0), tags])


RESPONSES: list[tuple[Callable[[bytes], object], bytes]] = [
    (
        partial(lambda topics, data: fetch_wire.read_fetch_response(data, 0, topics), topics),
        bytes(10)
        + (b"\x02" + name + b"\x02")
        + (struct.pack(">ihqqq", 0, 0, 9, 9, 0) + b"\x02" + struct.pack(">qq", 7, 3) + b"\0")
        + (b"\xff" * 4 + b"\x05data" + b"\0" + b"\0"),
    )
    for topics, name in ((None, compact(b"t")), ({bytes(16): "t"}, bytes(16)))
]
RESPONSES += [(metadata_reader(version), metadata_response(version)) for version in (9, 12)]
RESPONSES += [
    (
        lambda data: produce_wire.read_produce_response(data, 0),
        b"\x02"
        + compact(b"t")
        + b"\x02"
        + struct.pack(">ihqqq", 0, 0, 5, -1, 0)
        + b"\x01\0\0\0"
        + b"\0\0\0\0\0",
    ),
    (
        lambda data: transaction_wire.read_added_partitions(data, 0, 0),
        struct.pack(">ii", 0, 1) + plain(b"t") + struct.pack(">iih", 1, 0, 0),
    ),
    (lambda data: transaction_wire.read_end(data, 0, 5), struct.pack(">ihqh", 0, 0, 7, 1) + b"\0"),
]
_PLACE = {"node_id": 1, "host": "h", "port": 9092, "error_code": 0, "error_message": None}
_OFFSETS = [{"partition_index": 0, "committed_offset": 7, "metadata": "m"}]
_SCHEMAS: list[tuple[str, int, dict[str, Any]]] = [
    ("offset_fetch", 8, {"groups": [{"group_id": "g", "topics": [{"name": "t", "partitions": _OFFSETS}]}]}),
    ("offset_fetch", 5, {"topics": [{"name": "t", "partitions": _OFFSETS}]}),
    ("find_coordinator", 4, {"coordinators": [{"key": "g", **_PLACE}]}),
    ("find_coordinator", 1, _PLACE),
]


def schema_reader(api: str, version: int, data: bytes) -> object:
    asked = {"groups": (), "coordinator_keys": (), "key": "g", "group_id": "g", "topics": None}
    request = SchemaRequest(api, range(version, version + 1), asked)
    return request.prepare({request.api_key: (version, version)}).read(data, 0)


RESPONSES += [
    (partial(schema_reader, api, version), write_answer(API_KEYS[api], version, 0, answer)[8:])
    for api, version, answer in _SCHEMAS
]


@pytest.mark.parametrize("case", range(len(RESPONSES)))
@given(data=st.data())
def test_a_damaged_response_is_read_or_ends_the_connection(case: int, data: st.DataObject) -> None:
    """What `data_connection` takes for a response that cannot be read."""
    read, response = RESPONSES[case]
    read(response)
    with contextlib.suppress(struct.error, ValueError, IndexError):
        read(data.draw(damaged([response])))


_LONGEST = b"\xff\xff\xff\xff\x7f"
"""2**35 - 1 elements."""


@pytest.mark.parametrize(
    ("api", "version", "answer"),
    [
        ("offset_fetch", 8, bytes(5) + _LONGEST),
        ("offset_fetch", 8, bytes(5) + b"\x02\x02g" + _LONGEST),
        ("offset_fetch", 5, bytes(4) + b"\x7f\xff\xff\xff"),
        ("find_coordinator", 4, bytes(5) + _LONGEST),
    ],
)
def test_no_memory_is_reserved_for_what_an_answer_only_claims(api: str, version: int, answer: bytes) -> None:
    """kio would end the process where there is not as much."""
    with pytest.raises(ValueError, match="elements in the"):
        schema_reader(api, version, answer)
