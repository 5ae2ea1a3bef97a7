"""Offsets of many groups: how many requests are sent, and what one group's trouble means for the others."""

import asyncio
import struct
from collections import Counter
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.index import api_key_map
from kio.serial import entity_reader

from twinlog.errors import KafkaError
from twinlog.kafka.errors import KAFKA_CLIENT_ERRORS, translate
from twinlog.kafka.groups.coordinators import GROUPS_PER_REQUEST, GroupCoordinators
from twinlog.kafka.groups.offsets import GroupOffsetsClient
from twinlog.kafka.ports import CommittedOffset
from twinlog.model import TopicPartition
from twinlog.testing.broker.codec import write_answer

_FRAME_START = 8
"""Length and correlation id."""
_NEW = {8: (2, 10), 9: (1, 10), 10: (0, 6), 15: (0, 6)}
_OLD = {9: (0, 5), 10: (0, 2)}
_ORDERS = TopicPartition("orders", 3)


class Brokers:
    """Two brokers: a `BrokerSession` that answers as Kafka's protocol says."""

    def __init__(self, groups: Mapping[str, int], *, versions: Mapping[int, tuple[int, int]] = _NEW) -> None:
        """Group id -> its committed offset of orders-3."""
        self.alias = "A"
        self.timeout_seconds = 5.0
        self.requests: Counter[str] = Counter()
        self.groups = groups
        self.versions = versions
        self.moved: set[str] = set()
        """Groups whose coordinator says once that it is another broker's."""
        self.away: set[str] = set()
        self.refused: set[str] = set()
        self.unknown: set[str] = set()
        self.silent_nodes: set[int] = set()

    async def send_any(self, request: Any, doing: str) -> Any:
        return await self.send(1, request, doing)

    async def make_known(self, node_ids: Collection[int], doing: str) -> None:
        """Both are."""

    def coordinator(self, group_id: str) -> int:
        return 1 + len(group_id) % 2

    async def send(self, node_id: int, request: Any, doing: str) -> Any:
        await asyncio.sleep(0)  # noqa: TID251  # as a network does, others run meanwhile
        try:
            agreed = request.prepare(self.versions)
        except KAFKA_CLIENT_ERRORS as error:
            raise translate(error, doing, alias=self.alias) from error
        api, version = api_key_map[request.api_key], struct.unpack_from(">h", agreed.header(0, b""), 2)[0]
        body, _ = entity_reader(load_request_schema(request.api_key, version))(bytes(agreed.pieces[0]), 0)
        self.requests[f"{api} v{version}"] += 1
        if api == "offset_fetch" and node_id in self.silent_nodes:
            await asyncio.Event().wait()
        answer = {"find_coordinator": self._coordinators, "offset_commit": self._committed}.get(
            api, partial(self._offsets, node_id)
        )(body)
        frame = write_answer(request.api_key, version, 0, answer)
        return agreed.read(frame, _FRAME_START)

    def _code(self, group_id: str) -> int:
        if group_id in self.moved:
            self.moved.discard(group_id)
            return 16
        if group_id in self.away:
            return 15
        if group_id in self.unknown:
            return 69
        return 30 if group_id in self.refused else 0

    def _coordinators(self, asked: Any) -> Mapping[str, Any]:
        place = {"host": "host", "port": 9092, "error_code": 0, "error_message": None}
        if hasattr(asked, "key"):
            return {"node_id": self.coordinator(asked.key), **place}
        keys = asked.coordinator_keys
        return {"coordinators": [{"key": key, "node_id": self.coordinator(key), **place} for key in keys]}

    def _offsets(self, node_id: int, asked: Any) -> Mapping[str, Any]:
        if hasattr(asked, "group_id"):
            return self._group(asked.group_id)
        assert {self.coordinator(group.group_id) for group in asked.groups} == {node_id}
        return {
            "groups": [{"group_id": group.group_id, **self._group(group.group_id)} for group in asked.groups]
        }

    def _committed(self, asked: Any) -> Mapping[str, Any]:
        """Says nothing about any partition but the first."""
        code = self._code(asked.group_id)
        partitions = [{"partition_index": asked.topics[0].partitions[0].partition_index, "error_code": code}]
        return {"topics": [{"name": asked.topics[0].name, "partitions": partitions}]}

    def _group(self, group_id: str) -> Mapping[str, Any]:
        code = self._code(group_id)
        places = [(3, self.groups[group_id], "m"), (4, -1, "")]
        partitions = [
            {"partition_index": number, "committed_offset": offset, "metadata": metadata}
            for number, offset, metadata in places
        ]
        topics = [] if code else [{"name": "orders", "partitions": partitions}]
        return {"topics": topics, "error_code": code}


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
    assert brokers.requests == {"offset_fetch v8": 2_000 / GROUPS_PER_REQUEST, "find_coordinator v4": 2}
    assert await client.read(_MANY) == _committed(_MANY)
    assert brokers.requests["find_coordinator v4"] == 2, "coordinators are remembered"


async def test_a_broker_before_3_0_is_asked_for_each_group() -> None:
    groups = {f"group-{number}": number for number in range(20)}
    brokers = Brokers(groups, versions=_OLD)
    assert await GroupOffsetsClient(brokers, GroupCoordinators(brokers)).read(groups) == _committed(groups)
    assert brokers.requests == {"find_coordinator v2": 20, "offset_fetch v5": 20}


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


async def test_a_group_that_kafka_does_not_know_has_no_offsets() -> None:
    brokers = Brokers({"gone": 7})
    brokers.unknown = {"gone"}
    assert await GroupOffsetsClient(brokers, GroupCoordinators(brokers)).read(["gone"]) == {"gone": {}}


async def test_a_partition_that_the_answer_to_a_commit_leaves_out_is_not_committed() -> None:
    brokers = Brokers({})
    wanted = {
        partition: CommittedOffset(next_offset=1) for partition in (_ORDERS, TopicPartition("payments", 1))
    }
    outcome = await GroupOffsetsClient(brokers, GroupCoordinators(brokers)).commit("group", wanted)
    assert outcome.pop(_ORDERS) is None
    (left_out,) = outcome.values()
    assert isinstance(left_out, KafkaError)
    assert (left_out.reason, left_out.retriable) == ("KAFKA_SERVER_ERROR", True)


async def test_a_commit_follows_the_coordinator_and_asks_ever_more_rarely_while_there_is_none() -> None:
    brokers = Brokers({})
    brokers.moved, brokers.away = {"moved"}, {"away"}
    client = GroupOffsetsClient(brokers, GroupCoordinators(brokers))
    wanted = {_ORDERS: CommittedOffset(next_offset=1)}
    assert await client.commit("moved", wanted) == {_ORDERS: None}
    brokers.requests.clear()
    (error,) = (await client.commit("away", wanted)).values()
    assert isinstance(error, KafkaError)
    assert (error.retriable, "commit for group away" in str(error)) == (True, True)
    assert brokers.requests["find_coordinator v4"] < 2 * brokers.timeout_seconds
