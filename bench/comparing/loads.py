"""The loads of loads.yaml, and the batches they are made of. Random numbers are seeded."""

import json
import math
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import TypeVar

import yaml

from twinlog.batches import Codec, NewRecord, OutgoingBatch, build_batch

_SEED = 1
_FEWEST_RECORDS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A backlog that lies on the source before anything is started."""

    name: str
    """For `--loads`, topics and results."""
    title: str
    codec: Codec
    value_bytes: int = 1000
    record_count: int
    """Records of a full run: MM2 with its defaults takes about a minute for them on two cores."""
    partition_count: int = 8
    batch_records: tuple[int, ...] | None = None
    """Records per batch, in turn; None = as many as fill a batch on the wire."""
    round_trip_ms: float = 0.0
    """Between the copier and the target."""
    most_seconds: float = math.inf
    """A run is ended after so long; what it has copied by then is what it is judged by."""
    settings: tuple[tuple[str, str], ...] = ()
    """More keys of the flow."""
    kept_one_in: int = 1
    """The copiers drop all records but one in so many: the others have the header `internal`."""

    @property
    def keeps_names(self) -> bool:
        """Whether copies have the names of their topics."""
        return "replication.policy.class" in dict(self.settings)

    def scaled(self, scale: float) -> "Load":
        """The same load with `scale` times as many records, but not so few that nothing can be measured."""
        return replace(self, record_count=max(int(self.record_count * scale), _FEWEST_RECORDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLoad:
    """Records at a steady rate, each sent by itself, to one partition after the other."""

    name: str
    """For `--latency-loads` and results."""
    title: str
    records_per_second: int
    partitions: int
    value_bytes: int = 1000
    round_trip_ms: float = 0.0
    """Between the copier and the target."""
    lost_every_seconds: float = 0.0
    """One of the copier's connections to the target is lost so often; 0 = none."""
    settings: tuple[tuple[str, str], ...] = ()
    """As those of `Load`."""


def _loads() -> Iterator[Load]:
    for name, row in _FILE["loads"].items():
        codec, sizes = Codec[row.get("codec", "NONE")], row.get("batch_records")
        settings = tuple(row.get("settings", {}).items())
        more = {"codec": codec, "batch_records": sizes and tuple(sizes), "settings": settings}
        yield Load(name=name, **{**row, **more})


def _latency_loads() -> Iterator[LatencyLoad]:
    for name, row in _FILE["latency loads"].items():
        yield LatencyLoad(name=name, **{**row, "settings": tuple(row.get("settings", {}).items())})


_FILE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
LOADS = tuple(_loads())
LATENCY_LOADS = tuple(_latency_loads())
AnyLoad = TypeVar("AnyLoad", Load, LatencyLoad)


def chosen(loads: Sequence[AnyLoad], names: Collection[str]) -> Sequence[AnyLoad]:
    """The named loads in their order; all when none is named."""
    return [load for load in loads if not names or load.name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPool:
    """Ready batches, to be sent again and again."""

    batches: tuple[OutgoingBatch, ...]

    @property
    def mean_batch_bytes(self) -> float:
        return sum(batch.size_bytes for batch in self.batches) / len(self.batches)

    @property
    def bytes_per_record(self) -> float:
        """On the wire: compressed, batch headers included."""
        return sum(batch.size_bytes for batch in self.batches) / sum(
            batch.record_count for batch in self.batches
        )


def make_pool(load: Load, *, batch_bytes: int, pool_bytes: int, now_ms: int) -> BatchPool:
    """About `pool_bytes` of values in batches of `batch_bytes` on the wire, as a busy Java producer with that
    `batch.size` makes them: it reckons with the compression it has seen.
    """
    records = _records(load, now_ms)
    sizes = load.batch_records or (_records_that_fill(load, batch_bytes, now_ms),)
    # The same share of each batch is kept.
    sizes = tuple(max(size // load.kept_one_in, 1) * load.kept_one_in for size in sizes)
    batches = []
    left = max(pool_bytes // load.value_bytes, 1)
    for size in cycle(sizes):
        batches.append(build_batch([next(records) for _ in range(size)], codec=load.codec))
        left -= size
        if left <= 0:
            break
    return BatchPool(batches=tuple(batches))


def _records_that_fill(load: Load, batch_bytes: int, now_ms: int) -> int:
    count = max(batch_bytes // load.value_bytes, 1)
    records = _records(load, now_ms)
    sample = build_batch([next(records) for _ in range(count)], codec=load.codec)
    return max(int(count * batch_bytes / sample.size_bytes), 1)


def _records(load: Load, now_ms: int) -> Iterator[NewRecord]:
    rng = random.Random(_SEED)
    number = 0
    while True:
        headers = ((b"internal", b"1"),) if number % load.kept_one_in else ()
        yield NewRecord(b"key-%07d" % number, _value(rng, number, load.value_bytes), now_ms, headers)
        number += 1


def _value(rng: random.Random, number: int, value_bytes: int) -> bytes:
    """JSON that compresses about threefold, as orders and events do."""
    row = {"id": number, "customer": f"c{rng.randrange(10_000):05d}", "amount": round(rng.random() * 100, 2)}
    text = json.dumps(row)
    while len(text) < value_bytes:
        text += f',"{rng.choice(("note", "item", "state"))}":"{rng.getrandbits(40):x} {number}"'
    return text[:value_bytes].encode()
