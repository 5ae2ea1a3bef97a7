"""What copying costs one core, without a broker: MB/s and records/s of each lane.

Figures are of the wire bytes of the source and of one thread; only those of one machine and hour compare.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from twinlog.batches import (
    Codec,
    CopyPolicy,
    NewRecord,
    Seal,
    TargetTopicLimits,
    build_batch,
    prepare,
    sealed,
    sealed_header,
)

_NOON_MS = 1_700_000_000_000
_SEAL = Seal(producer_id=4711, producer_epoch=1, base_sequence=0, transactional=True)
_FETCH_BYTES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A fetch response of one partition, about a megabyte of records."""

    name: str
    data: bytes
    record_count: int


def _values(value_bytes: int, count: int) -> Iterable[bytes]:
    """JSON that compresses about threefold, as orders and events do."""
    rng = random.Random(value_bytes)
    for number in range(count):
        row = {
            "id": number,
            "customer": f"c{rng.randrange(10_000):05d}",
            "amount": round(rng.random() * 100, 2),
        }
        text = json.dumps(row)
        while len(text) < value_bytes:
            text += f',"{rng.choice(("note", "item", "state"))}":"{rng.getrandbits(40):x} {number}"'
        yield text[:value_bytes].encode()


def _load(codec: Codec, value_bytes: int, records_per_batch: int) -> Load:
    count = max(_FETCH_BYTES // value_bytes // records_per_batch, 1) * records_per_batch
    records = [
        NewRecord(b"key-%07d" % number, value, _NOON_MS + number)
        for number, value in enumerate(_values(value_bytes, count))
    ]
    data = b""
    for start in range(0, count, records_per_batch):
        batch = sealed(build_batch(records[start : start + records_per_batch], codec=codec), _SEAL)
        data += start.to_bytes(8, "big") + batch[8:]
    return Load(
        name=f"{codec.name.lower()} {value_bytes} B x {records_per_batch}",
        data=data,
        record_count=count,
    )


def _seconds_per_call(call: Callable[[], object], seconds: float) -> float:
    call()
    count = 0
    began = time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        call()
        count += 1
    return spent / count


def _copy(load: Load, policy: CopyPolicy) -> Callable[[], object]:
    def copy() -> None:
        prepared = prepare(load.data, wanted_offset=0, policy=policy, backlog=True)
        assert prepared.record_count == load.record_count
        for batch in prepared.batches:
            sealed_header(batch, _SEAL)

    return copy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.5, help="per figure (default: %(default)s)")
    seconds = parser.parse_args().seconds
    table = Table("load", "lane", "MB/s", "records/s", "µs/fetch", title="one thread")
    raw = CopyPolicy(coalesce_below_bytes=0)
    packed = CopyPolicy(coalesce_below_bytes=1 << 20)
    rows: list[tuple[Load, str, CopyPolicy]] = []
    for records_per_batch, value_bytes in ((1000, 1000), (130, 1000), (16, 1000), (1, 1000), (8000, 100)):
        rows.append((_load(Codec.NONE, value_bytes, records_per_batch), "raw", raw))
    for value_bytes, records_per_batch in ((1000, 1), (1000, 16), (100, 1), (100, 50)):
        rows += [(_load(codec, value_bytes, records_per_batch), "packed", packed) for codec in Codec]
    for value_bytes in (1000, 100):
        source = _load(Codec.NONE, value_bytes, _FETCH_BYTES // value_bytes)
        for codec in Codec:
            if codec is not Codec.NONE:
                policy = CopyPolicy(target=TargetTopicLimits(codec=codec), coalesce_below_bytes=0)
                rows.append((source, f"to {codec.name.lower()}", policy))
    for load, lane, policy in rows:
        spent = _seconds_per_call(_copy(load, policy), seconds)
        table.add_row(
            load.name,
            lane,
            f"{_FETCH_BYTES / spent / 1e6:,.0f}",
            f"{load.record_count / spent:,.0f}",
            f"{spent * 1e6:,.1f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
