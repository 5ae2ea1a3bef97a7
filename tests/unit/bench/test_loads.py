"""Loads and what the copiers are told."""

import pytest
from bench.comparing.copiers import copier_properties
from bench.comparing.loads import LOADS, choose_loads, make_pool
from bench.comparing.results import Copier

from twinlog.batches import Codec, Seal, decode_batch, read_batches, sealed
from twinlog.errors import ConfigError
from twinlog.model import Flow

NOW_MS = 1_700_000_000_000
SEAL = Seal(producer_id=1, producer_epoch=0, base_sequence=0, transactional=False)
FLOW = Flow("a", "b")
SOURCE, TARGET = {"bootstrap.servers": "127.0.0.1:1"}, {"bootstrap.servers": "127.0.0.1:2"}


@pytest.mark.parametrize("name", ["1kb-none", "1kb-zstd", "1kb-lz4", "100b-zstd"])
def test_batches_have_the_asked_size_on_the_wire(name: str) -> None:
    (load,) = choose_loads([name])
    pool = make_pool(load, batch_bytes=40_000, pool_bytes=400_000, now_ms=NOW_MS)
    assert pool.mean_batch_bytes == pytest.approx(40_000, rel=0.1)
    batch = pool.batches[0]
    assert batch.codec is load.codec
    assert batch.record_count == len(decode_batch(read_batches(sealed(batch, SEAL))[0]))


def test_tiny_batches_have_one_record_and_two_in_turn() -> None:
    (load,) = choose_loads(["tiny-batches"])
    pool = make_pool(load, batch_bytes=40_000, pool_bytes=9_000, now_ms=NOW_MS)
    assert [batch.record_count for batch in pool.batches] == [1, 2, 1, 2, 1, 2]
    assert pool.bytes_per_record > load.value_bytes


def test_values_have_the_size_that_the_load_says() -> None:
    for load in LOADS:
        pool = make_pool(load, batch_bytes=4_000, pool_bytes=1, now_ms=NOW_MS)
        records = decode_batch(read_batches(sealed(pool.batches[0], SEAL))[0])
        assert {len(record.value or b"") for record in records} == {load.value_bytes}
        assert {record.timestamp_ms for record in records} == {NOW_MS}


def test_loads_are_chosen_by_name_in_their_own_order() -> None:
    assert [load.name for load in choose_loads(["100b-zstd", "1kb-none"])] == ["1kb-none", "100b-zstd"]
    assert tuple(choose_loads([])) == LOADS
    with pytest.raises(ConfigError, match="there is no load '2kb': choose from 100-partitions, 100b-zstd"):
        choose_loads(["1kb-none", "2kb"])


def test_a_scaled_load_is_never_too_small_to_measure() -> None:
    assert LOADS[0].scaled(0.5).record_count == LOADS[0].record_count // 2
    assert LOADS[0].scaled(1e-9).record_count == 10_000


def test_both_copiers_are_told_the_same_but_for_the_tuning() -> None:
    def told(copier: Copier) -> dict[str, str]:
        return copier_properties(copier, FLOW, SOURCE, TARGET, topics="load", codec=Codec.ZSTD)

    assert told(Copier.TWINLOG) == told(Copier.MM2)
    assert told(Copier.MM2)["a->b.topics"] == "load"
    assert told(Copier.MM2)["a.bootstrap.servers"] == "127.0.0.1:1"
    tuning = dict(told(Copier.MM2_TUNED).items() - told(Copier.MM2).items())
    assert tuning == {
        "a.consumer.max.poll.records": "10000",
        "b.producer.batch.size": "1048576",
        "b.producer.linger.ms": "20",
        "b.producer.compression.type": "zstd",
    }
