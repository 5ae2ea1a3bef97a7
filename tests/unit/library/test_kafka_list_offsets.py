"""ListOffsets as bytes, in every version that is spoken."""

import struct

import pytest

from twinlog.kafka.protocol.encoding import INT32, string
from twinlog.kafka.protocol.list_offsets import LATEST_TIMESTAMP, LogOffset, list_offsets_request
from twinlog.model import TopicPartition

ORDERS = [TopicPartition("orders", 0), TopicPartition("orders", 7)]
PAYMENTS = TopicPartition("payments", 1)
WITHOUT_EPOCH, WITH_EPOCH = [2, 3], [4, 5]


@pytest.mark.parametrize("version", WITHOUT_EPOCH + WITH_EPOCH)
def test_a_request_groups_partitions_by_topic_and_names_the_isolation(version: int) -> None:
    asked = {ORDERS[0]: LATEST_TIMESTAMP, PAYMENTS: 1_700_000_000_000, ORDERS[1]: LATEST_TIMESTAMP}
    agreed = list_offsets_request(asked, read_committed=True).prepare({2: (0, version)})
    epoch = INT32.pack(-1) if version in WITH_EPOCH else b""
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


@pytest.mark.parametrize("version", WITHOUT_EPOCH + WITH_EPOCH)
def test_an_answer_is_read_with_the_leader_epoch_where_there_is_one(version: int) -> None:
    agreed = list_offsets_request({}, read_committed=False).prepare({2: (0, version)})
    body = b"".join(
        (
            INT32.pack(0),
            INT32.pack(1),
            string("orders"),
            INT32.pack(2),
            struct.pack(">ihqq", 0, 0, -1, 42) + (INT32.pack(9) if version in WITH_EPOCH else b""),
            struct.pack(">ihqq", 7, 3, -1, -1) + (INT32.pack(-1) if version in WITH_EPOCH else b""),
        )
    )
    assert agreed.read(body, 0) == [
        (ORDERS[0], 0, LogOffset(42, 9 if version in WITH_EPOCH else None)),
        (ORDERS[1], 3, LogOffset(-1, -1 if version in WITH_EPOCH else None)),
    ]
