"""Kafka's default partitioner against Kafka's published vectors and its own answers."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.wire.murmur2 import murmur2, partition_for_key

Golden = Callable[[str], list[dict[str, Any]]]


def test_hashes_are_kafkas(golden: Golden) -> None:
    for vector in golden("murmur2"):
        assert murmur2(bytes.fromhex(vector["key"])) == vector["hash"], vector["key"]


@given(st.binary(max_size=64), st.integers(1, 1000))
def test_a_partition_is_one_of_the_topics(key: bytes, partition_count: int) -> None:
    assert 0 <= partition_for_key(key, partition_count) < partition_count


def test_a_topic_has_partitions() -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        partition_for_key(b"k", 0)
