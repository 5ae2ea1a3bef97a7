"""The loads, and the batches they are made of. Pure but for the random numbers, which are seeded."""

import json
import math
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle

from twinlog.batches import Codec, NewRecord, OutgoingBatch, build_batch
from twinlog.errors import ConfigError

_SEED = 1
_FEWEST_RECORDS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A backlog that lies on the source before anything is started."""

    name: str
    """For `--loads`, topics and results."""
    title: str
    codec: Codec
    value_bytes: int
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
        return self.settings == _SAME_NAMES

    def scaled(self, scale: float) -> "Load":
        """The same load with `scale` times as many records, but not so few that nothing can be measured."""
        return replace(self, record_count=max(int(self.record_count * scale), _FEWEST_RECORDS))


_SAME_NAMES = (("replication.policy.class", "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"),)
_EXPRESSION = (
    ("twinlog.transform.topics", "(load|latency)-.*"),
    (
        "twinlog.transform.value",
        """regexp_replace(CAST(value AS string), '"amount": [0-9.]+', '"amount": 0')""",
    ),
)
_FILTER = (
    ("transforms", "local"),
    ("transforms.local.type", "org.apache.kafka.connect.transforms.Filter"),
    ("transforms.local.predicate", "isLocal"),
    ("predicates", "isLocal"),
    ("predicates.isLocal.type", "org.apache.kafka.connect.transforms.predicates.HasHeaderKey"),
    ("predicates.isLocal.name", "internal"),
)
LOADS = (
    Load(name="1kb-none", title="1 KB, none", codec=Codec.NONE, value_bytes=1000, record_count=3_000_000),
    Load(name="1kb-zstd", title="1 KB, zstd", codec=Codec.ZSTD, value_bytes=1000, record_count=4_000_000),
    Load(name="1kb-lz4", title="1 KB, lz4", codec=Codec.LZ4, value_bytes=1000, record_count=4_000_000),
    Load(name="100b-zstd", title="100 B, zstd", codec=Codec.ZSTD, value_bytes=100, record_count=16_000_000),
    *(
        Load(
            name=name,
            title=title,
            codec=Codec.NONE,
            value_bytes=1000,
            record_count=2_400_000,
            batch_records=(1, 2),
            settings=settings,
        )
        for name, title, settings in (
            ("tiny-batches", "1 KB, 1-2 records a batch", ()),
            # Each batch is asked who wrote it.
            ("same-names", "1 KB, 1-2 records a batch, copies keep names", _SAME_NAMES),
        )
    ),
    Load(
        name="100-partitions",
        title="1 KB, none, 100 partitions",
        codec=Codec.NONE,
        value_bytes=1000,
        record_count=3_000_000,
        partition_count=100,
    ),
    *(
        Load(
            name=f"far-{round_trip_ms}",
            title=f"1 KB, none, {round_trip_ms} ms apart",
            codec=Codec.NONE,
            value_bytes=1000,
            record_count=record_count,
            round_trip_ms=round_trip_ms,
            most_seconds=60.0,
        )
        for round_trip_ms, record_count in ((60, 1_500_000), (150, 1_500_000))
    ),
    Load(
        name="far-60-one",
        title="1 KB, none, 60 ms apart, one partition",
        codec=Codec.NONE,
        value_bytes=1000,
        record_count=600_000,
        partition_count=1,
        round_trip_ms=60,
        most_seconds=60.0,
    ),
    *(
        Load(
            name=f"filter-{codec.name.lower()}",
            title=f"1 KB, {codec.name.lower()}, half dropped by a header (transforms)",
            codec=codec,
            value_bytes=1000,
            record_count=2_000_000,
            settings=_FILTER,
            kept_one_in=2,
        )
        for codec in (Codec.NONE, Codec.ZSTD)
    ),
    Load(
        name="expression",
        title="1 KB, none, a regular expression on each value (MM2: only copied)",
        codec=Codec.NONE,
        value_bytes=1000,
        record_count=1_000_000,
        settings=_EXPRESSION,
    ),
)


def choose_loads(names: Collection[str]) -> Sequence[Load]:
    """The named loads in the order of `LOADS`; all when none is named. Raises ConfigError."""
    known = {load.name for load in LOADS}
    unknown = sorted(set(names) - known)
    if unknown:
        raise ConfigError(f"there is no load {unknown[0]!r}: choose from {', '.join(sorted(known))}")
    return [load for load in LOADS if not names or load.name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLoad:
    """Records at a steady rate, each sent by itself, to one partition after the other."""

    name: str
    """For `--latency-loads` and results."""
    title: str
    records_per_second: int
    partitions: int
    stream_bytes_per_second: int = 0
    """Beside them, into another topic of eight partitions, as records of 100 KB."""
    value_bytes: int = 1000
    round_trip_ms: float = 0.0
    """Between the copier and the target."""
    lost_every_seconds: float = 0.0
    """One of the copier's connections to the target is lost so often; 0 = none."""
    settings: tuple[tuple[str, str], ...] = ()
    """As those of `Load`."""


LATENCY_LOADS = (
    LatencyLoad(
        name="busy", title="1,000 records/s over 8 partitions", records_per_second=1000, partitions=8
    ),
    LatencyLoad(
        name="quiet", title="200 records/s over 24 partitions", records_per_second=200, partitions=24
    ),
    LatencyLoad(name="sparse", title="50 records/s over 24 partitions", records_per_second=50, partitions=24),
    LatencyLoad(
        name="mixed",
        title="200 records/s over 24 partitions, beside 10 MB/s in another topic",
        records_per_second=200,
        partitions=24,
        stream_bytes_per_second=10_000_000,
    ),
    *(
        LatencyLoad(
            name=f"far-{round_trip_ms}",
            title=f"500 records/s of 200 B over 8 partitions, {round_trip_ms} ms apart",
            records_per_second=500,
            partitions=8,
            value_bytes=200,
            round_trip_ms=round_trip_ms,
        )
        for round_trip_ms in (20, 60, 150)
    ),
    LatencyLoad(
        name="lossy-60",
        title="500 records/s of 200 B over 8 partitions, 60 ms apart, a connection lost every 5 s",
        records_per_second=500,
        partitions=8,
        value_bytes=200,
        round_trip_ms=60,
        lost_every_seconds=5.0,
    ),
    *(
        LatencyLoad(
            name=f"expression-{records_per_second}" + ("-far-60" if round_trip_ms else ""),
            title=f"{records_per_second} records/s over 8 partitions, a regular expression on each value"
            " (MM2: only copied)" + (", 60 ms apart" if round_trip_ms else ""),
            records_per_second=records_per_second,
            partitions=8,
            round_trip_ms=round_trip_ms,
            settings=_EXPRESSION,
        )
        for records_per_second, round_trip_ms in ((50, 0), (200, 0), (500, 0), (200, 60))
    ),
)


def choose_latency_loads(names: Collection[str]) -> Sequence[LatencyLoad]:
    """The named loads in the order of `LATENCY_LOADS`; all when none is named."""
    return [load for load in LATENCY_LOADS if not names or load.name in names]


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
