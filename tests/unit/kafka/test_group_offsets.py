"""Offsets of many groups: how many requests are sent, and what one group's trouble means for the others."""

import asyncio
import struct
from collections import Counter
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.errors import KafkaError
from twinlog.kafka.errors import KAFKA_CLIENT_ERRORS, from_code, translate
from twinlog.kafka.groups.asking import GROUPS_PER_REQUEST
from twinlog.kafka.groups.coordinators import GroupCoordinators
from twinlog.kafka.groups.descriptions import DescribedGroup, describe_groups_request
from twinlog.kafka.groups.offsets import GroupOffsetsClient
from twinlog.kafka.groups.requests import fetch_offsets_request, find_coordinators_request
from twinlog.kafka.ports import CommittedOffset
from twinlog.kafka.protocol.encoding import (
    INT16,
    INT32,
    NO_TAGS,
    compact_length,
    compact_string,
    string,
    take_compact_length,
    take_compact_string,
)
from twinlog.kafka.protocol.requests import HandWrittenRequest
from twinlog.model import TopicPartition

_NEW = {9: (1, 10), 10: (0, 6), 15: (0, 6)}
_OLD = {9: (0, 5), 10: (0, 2)}
_ORDERS = TopicPartition("orders", 3)


class Brokers:
    """Two brokers in bytes: a `BrokerSession` that answers as Kafka's protocol says."""

    def __init__(self, groups: Mapping[str, int], *, versions: Mapping[int, tuple[int, int]] = _NEW) -> None:
        """Group id -> its committed offset of orders-3."""
        self.alias = "A"
        self.timeout_seconds = 5.0
        self.requests: Counter[str] = Counter()
        self.groups = groups
        self.versions = versions
        self.moved: set[str] = set()
        """Groups whose coordinator says once that it is another broker's."""
        self.refused: set[str] = set()
        self.silent_nodes: set[int] = set()

    async def send_any(self, request: Any, doing: str) -> Any:
        return await self.send(1, request, doing)

    async def make_known(self, node_ids: Collection[int], doing: str) -> None:
        """Both are."""

    def coordinator(self, group_id: str) -> int:
        return 1 + len(group_id) % 2

    async def send(self, node_id: int, request: Any, doing: str) -> Any:
        await asyncio.sleep(0)  # noqa: TID251  # as a network does, others run meanwhile
        if not isinstance(request, HandWrittenRequest):
            return self._single(node_id, request)
        try:
            agreed = request.prepare(self.versions)
        except KAFKA_CLIENT_ERRORS as error:
            raise translate(error, doing, alias=self.alias) from error
        body = b"".join(bytes(piece) for piece in agreed.pieces)
        kind = "coordinators" if body.startswith(b"\0") else "offsets"
        self.requests[kind] += 1
        if kind == "offsets" and node_id in self.silent_nodes:
            await asyncio.Event().wait()
        asked = _texts(body, 1 if kind == "coordinators" else 0, tags=2 if kind == "offsets" else 0)
        answer = self._coordinators(asked) if kind == "coordinators" else self._offsets(node_id, asked)
        return agreed.read(NO_TAGS + INT32.pack(0) + answer, 0)

    def _single(self, node_id: int, request: Any) -> Any:
        self.requests[type(request).__name__] += 1
        if isinstance(request, FindCoordinatorRequest):
            group_id = request._coordinator_key
            return SimpleNamespace(error_code=0, coordinator_id=self.coordinator(group_id))
        assert isinstance(request, OffsetFetchRequest)
        group_id = request._consumer_group
        committed = [(3, self.groups[group_id], "m", 0), (4, -1, "", 0)]
        return SimpleNamespace(error_code=self._code(group_id), topics=[("orders", committed)])

    def _code(self, group_id: str) -> int:
        if group_id in self.moved:
            self.moved.discard(group_id)
            return 16
        return 30 if group_id in self.refused else 0

    def _coordinators(self, asked: list[str]) -> bytes:
        entries = [
            compact_string(group_id)
            + INT32.pack(self.coordinator(group_id))
            + compact_string("host")
            + INT32.pack(9092)
            + INT16.pack(0)
            + b"\0"
            + NO_TAGS
            for group_id in asked
        ]
        return compact_length(len(entries)) + b"".join(entries) + NO_TAGS

    def _offsets(self, node_id: int, asked: list[str]) -> bytes:
        assert {self.coordinator(group_id) for group_id in asked} == {node_id}
        entries = []
        for group_id in asked:
            code = self._code(group_id)
            partitions = [
                struct.pack(">iqi", 3, self.groups[group_id], -1)
                + compact_string("m")
                + INT16.pack(0)
                + NO_TAGS,
                struct.pack(">iqi", 4, -1, -1) + b"\0" + INT16.pack(0) + NO_TAGS,
            ]
            topic = compact_string("orders") + compact_length(2) + b"".join(partitions) + NO_TAGS
            topics = b"\1" if code else b"\2" + topic
            entries.append(compact_string(group_id) + topics + INT16.pack(code) + NO_TAGS)
        return compact_length(len(entries)) + b"".join(entries) + NO_TAGS


def _texts(body: bytes, position: int, *, tags: int) -> list[str]:
    count, position = take_compact_length(body, position)
    texts = []
    for _ in range(count):
        text, position = take_compact_string(body, position)
        position += tags
        texts.append(text)
    return texts


def _committed(groups: Mapping[str, int]) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    return {
        group_id: {_ORDERS: CommittedOffset(next_offset=offset, metadata="m")}
        for group_id, offset in groups.items()
    }


_MANY = {f"group-{'x' * (number % 2)}{number:04}": number for number in range(2_000)}


async def test_requests_do_not_grow_with_every_group() -> None:
    brokers = Brokers(_MANY)
    client = GroupOffsetsClient(brokers, GroupCoordinators(brokers))
    assert await client.read(_MANY) == _committed(_MANY)
    assert brokers.requests["offsets"] == 2_000 / GROUPS_PER_REQUEST
    assert brokers.requests["coordinators"] == 2
    assert await client.read(_MANY) == _committed(_MANY)
    assert brokers.requests["coordinators"] == 2, "coordinators are remembered"


async def test_a_broker_before_3_0_is_asked_for_each_group() -> None:
    groups = {f"group-{number}": number for number in range(20)}
    brokers = Brokers(groups, versions=_OLD)
    assert await GroupOffsetsClient(brokers, GroupCoordinators(brokers)).read(groups) == _committed(groups)
    assert brokers.requests == {"FindCoordinatorRequest": 20, "OffsetFetchRequest": 20}


@pytest.mark.parametrize("versions", [_NEW, _OLD], ids=["many", "single"])
async def test_a_group_that_moved_or_is_refused_hides_no_other(
    versions: Mapping[int, tuple[int, int]],
) -> None:
    groups = {f"group-{number}": number for number in range(10)}
    brokers = Brokers(groups, versions=versions)
    brokers.moved = {"group-3"}
    brokers.refused = {"group-4"}
    found = await GroupOffsetsClient(brokers, GroupCoordinators(brokers)).read(groups)
    refused = found.pop("group-4")
    assert isinstance(refused, KafkaError)
    assert (refused.reason, "group-4" in str(refused)) == ("GROUP_UNAUTHORIZED", True)
    assert found == _committed({group: offset for group, offset in groups.items() if group != "group-4"})


async def test_a_silent_broker_delays_its_own_groups_only() -> None:
    brokers = Brokers(_MANY)
    brokers.timeout_seconds = 1.0
    brokers.silent_nodes = {2}
    found = await GroupOffsetsClient(brokers, GroupCoordinators(brokers)).read(_MANY)
    own = {group for group in _MANY if brokers.coordinator(group) == 2}
    answers = {group: offsets for group, offsets in found.items() if group not in own}
    assert answers == _committed({group: offset for group, offset in _MANY.items() if group not in own})
    assert {_reason(found[group]) for group in own} == {"KAFKA_TIMEOUT"}


def _reason(answer: object) -> str:
    assert isinstance(answer, KafkaError)
    return answer.reason


def test_a_group_that_kafka_does_not_know_has_no_offsets() -> None:
    request = fetch_offsets_request(["gone"]).prepare(_NEW)
    answer = (
        NO_TAGS + INT32.pack(0) + b"\2" + compact_string("gone") + b"\1" + INT16.pack(69) + NO_TAGS + NO_TAGS
    )
    fetched = request.read(answer, 0)
    assert (fetched["gone"].error_code, fetched["gone"].offsets) == (69, {})
    assert from_code(69, "read").reason == "GROUP_UNKNOWN"


def test_a_group_of_any_protocol_is_described_with_its_members_and_rights() -> None:
    request = describe_groups_request(["lease", "gone"], with_rights=True).prepare(_NEW)
    assert b"".join(bytes(piece) for piece in request.pieces) == (
        INT32.pack(2) + string("lease") + string("gone") + b"\1"
    )
    member = string("m-1") + string("client") + string("/host") + INT32.pack(2) + b"ab" + INT32.pack(-1)
    lease = INT16.pack(0) + string("lease") + string("Stable") + string("twinlog") + string("first")
    lease += INT32.pack(2) + member + member + INT32.pack(1 << 3 | 1 << 8)
    gone = INT16.pack(0) + string("gone") + string("Dead") + string("") + string("")
    gone += INT32.pack(0) + INT32.pack(-(1 << 31))
    assert request.read(INT32.pack(0) + INT32.pack(2) + lease + gone, 0) == {
        "lease": DescribedGroup(0, "STABLE", 2, 1 << 3 | 1 << 8),
        "gone": DescribedGroup(0, "DEAD", 0, 0),
    }


@given(st.binary(max_size=200))
def test_damaged_answers_raise_what_ends_the_connection(data: bytes) -> None:
    """`DataConnection` closes on these errors; any other would leave the request without an end."""
    for request in (
        fetch_offsets_request(["g"]),
        find_coordinators_request(["g"]),
        describe_groups_request(["g"], with_rights=True),
    ):
        agreed = request.prepare(_NEW)
        try:
            agreed.read(data, 0)
        except (struct.error, ValueError, IndexError):
            continue
