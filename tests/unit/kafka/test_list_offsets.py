"""ListOffsets as bytes, in every version that is spoken."""

import struct
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.errors import KafkaError
from twinlog.kafka.ports import LogEnd
from twinlog.kafka.protocol.frames import INT32, string
from twinlog.kafka.raw.lookups import LATEST_TIMESTAMP, list_offsets_request, look_up_offsets
from twinlog.model import TopicPartition

ORDERS = [TopicPartition("orders", 0), TopicPartition("orders", 7)]
PAYMENTS = TopicPartition("payments", 1)
VERSIONS = [4, 5]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_groups_partitions_by_topic_and_names_the_isolation(version: int) -> None:
    asked = {ORDERS[0]: LATEST_TIMESTAMP, PAYMENTS: 1_700_000_000_000, ORDERS[1]: LATEST_TIMESTAMP}
    agreed = list_offsets_request(asked, read_committed=True).prepare({2: (0, version)})
    epoch = INT32.pack(-1)
    assert b"".join(agreed.pieces) == b"".join(
        (
            INT32.pack(-1),
            b"\x01",
            INT32.pack(2),
            string("orders"),
            INT32.pack(2),
            INT32.pack(0) + epoch + struct.pack(">q", -1),
            INT32.pack(7) + epoch + struct.pack(">q", -1),
            string("payments"),
            INT32.pack(1),
            INT32.pack(1) + epoch + struct.pack(">q", 1_700_000_000_000),
        )
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_is_read_with_the_leader_epoch(version: int) -> None:
    agreed = list_offsets_request({}, read_committed=False).prepare({2: (0, version)})
    body = b"".join(
        (
            INT32.pack(0),
            INT32.pack(1),
            string("orders"),
            INT32.pack(2),
            struct.pack(">ihqq", 0, 0, -1, 42) + INT32.pack(9),
            struct.pack(">ihqq", 7, 3, -1, -1) + INT32.pack(-1),
        )
    )
    assert agreed.read(body, 0) == [
        (ORDERS[0], 0, LogEnd(42, 9)),
        (ORDERS[1], 3, LogEnd(-1, -1)),
    ]


class _Forgetful:
    """A broker that leads all partitions, as a session and its client show it, and leaves some out of its
    answers."""

    alias = "A"
    timeout_seconds = 5.0

    def __init__(self, *left_out: Sequence[TopicPartition]) -> None:
        """What each answer leaves out; the last one is repeated."""
        self._left_out = left_out
        self.answers = 0
        self._topics: set[str] = set()
        self.cluster = SimpleNamespace(
            leader_for_partition=lambda partition: 1, broker_metadata=lambda node_id: node_id
        )

    async def client(self, doing: str) -> Any:
        return self

    async def leaders(self, partitions: Collection[TopicPartition], doing: str, *, alias: str) -> Any:
        return dict.fromkeys(partitions, 1)

    async def refreshed(self) -> bool:
        return True

    def set_topics(self, topics: Collection[str]) -> None:
        self._topics = set(topics)

    async def send_any(self, request: Any, doing: str) -> Any:
        return await self.send(1, request, doing)

    async def make_known(self, node_ids: Collection[int], doing: str) -> None:
        """It is."""

    async def send(self, node_id: int, request: Any, doing: str) -> Any:
        left_out = self._left_out[min(self.answers, len(self._left_out) - 1)]
        self.answers += 1
        told = [partition for partition in (*ORDERS, PAYMENTS) if partition not in left_out]
        return [(partition, 0, LogEnd(7, -1)) for partition in told]


ASKED = dict.fromkeys((*ORDERS, PAYMENTS), LATEST_TIMESTAMP)


async def test_a_partition_that_a_broker_leaves_out_is_asked_for_again() -> None:
    session: Any = _Forgetful([PAYMENTS], [PAYMENTS], [])
    found = await look_up_offsets(session, ASKED, read_committed=False, doing="look")
    assert found == dict.fromkeys(ASKED, 7)
    assert session.answers == 3


async def test_a_partition_that_a_broker_always_leaves_out_is_an_error_that_hides_no_other() -> None:
    session: Any = _Forgetful([PAYMENTS])
    found = await look_up_offsets(session, ASKED, read_committed=False, doing="look")
    missing = found.pop(PAYMENTS)
    assert isinstance(missing, KafkaError)
    assert (missing.reason, missing.retriable) == ("LEADER_UNAVAILABLE", True)
    assert found == dict.fromkeys(ORDERS, 7)


async def test_what_was_not_asked_for_is_not_answered() -> None:
    session: Any = _Forgetful([])
    assert await look_up_offsets(session, {PAYMENTS: 0}, read_committed=False, doing="look") == {PAYMENTS: 7}
