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


@pytest.mark.parametrize(
    ("key", "signed_hash"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"t1"}]', -325340394),
    ],
)
def test_published_vectors(key: bytes, signed_hash: int) -> None:
    assert murmur2(key) == signed_hash


@given(st.binary(max_size=64), st.integers(1, 1000))
def test_a_partition_is_one_of_the_topics(key: bytes, partition_count: int) -> None:
    assert 0 <= partition_for_key(key, partition_count) < partition_count


def test_a_topic_has_partitions() -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        partition_for_key(b"k", 0)
