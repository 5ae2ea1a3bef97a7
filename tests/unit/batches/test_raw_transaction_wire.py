"""The requests around transactions, byte for byte against aiokafka's classes."""

from typing import Any

import pytest
from aiokafka.protocol import transaction as theirs

from twinlog.kafka.raw.transaction_wire import (
    ProducerIdentity,
    add_partitions_request,
    end_request,
)
from twinlog.model import TopicPartition

_ID = "twinlog-A-B-0-1"
_IDENTITY = ProducerIdentity(1 << 40, 7)


def _body(request: Any, api_key: int, version: int) -> bytes:
    return b"".join(request.prepare({api_key: (0, version)}).pieces)


@pytest.mark.parametrize("version", range(3))
def test_adding_partitions_is_theirs(version: int) -> None:
    partitions = [TopicPartition("a", 0), TopicPartition("ä", 3), TopicPartition("a", 2)]
    ours = add_partitions_request(_ID, _IDENTITY, partitions)
    expected = theirs.AddPartitionsToTxnRequest(_ID, *_IDENTITY, [("a", [0, 2]), ("ä", [3])])
    assert _body(ours, 24, version) == expected.prepare({24: (0, min(version, 1))}).encode()
    answer = theirs.AddPartitionsToTxnResponse_v0(5, [("a", [(0, 0), (2, 55)]), ("ä", [(3, 29)])])
    codes = ours.prepare({24: (0, version)}).read(answer.encode(), 0)
    assert codes == dict(zip([partitions[0], partitions[2], partitions[1]], [0, 55, 29], strict=True))


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(3))
def test_ending_is_theirs(version: int, commit: bool) -> None:
    ours = end_request(_ID, _IDENTITY, commit=commit)
    expected = theirs.EndTxnRequest(_ID, *_IDENTITY, commit).prepare({26: (0, min(version, 1))})
    assert _body(ours, 26, version) == expected.encode()
    answer = ours.prepare({26: (0, version)}).read(theirs.EndTxnResponse_v0(0, 51).encode(), 0)
    assert answer == 51
