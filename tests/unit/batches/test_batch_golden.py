"""Batches written by Kafka's Java classes are read as those classes read them, and copied without a
difference."""

import json
from pathlib import Path
from typing import Any

from twinlog.batches import (
    Codec,
    CopyPolicy,
    DecodedRecord,
    Lane,
    TargetTopicLimits,
    crc_is_valid,
    decode_batch,
    prepare,
    read_batches,
)
from twinlog.batches.outgoing import Seal, sealed
from unit.cases import about

_GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "batches.json").read_text())
_SEAL = Seal(17, 3, 0, transactional=True)


def _expected(golden: dict[str, Any]) -> list[DecodedRecord]:
    return [
        DecodedRecord(
            record["offset"],
            record["timestamp_ms"],
            _bytes(record["key"]),
            _bytes(record["value"]),
            tuple((bytes.fromhex(key), _bytes(value)) for key, value in record["headers"]),
        )
        for record in golden["records"]
    ]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def test_reads_what_java_reads() -> None:
    for golden in _GOLDEN:
        with about(golden["name"]):
            batches = read_batches(bytes.fromhex(golden["bytes"]))
            assert [record for batch in batches for record in decode_batch(batch)] == _expected(golden)


def test_headers_are_those_java_sees() -> None:
    for golden in _GOLDEN:
        with about(golden["name"]):
            batches = read_batches(bytes.fromhex(golden["bytes"]))
            assert [
                {
                    "magic": batch.header.magic,
                    "last_offset": batch.header.last_offset,
                    "next_offset": batch.header.next_offset,
                    "is_control": batch.header.is_control,
                    "is_transactional": batch.header.is_transactional,
                    "producer_id": batch.header.producer_id,
                    "is_log_append_time": batch.header.is_log_append_time,
                    "size_bytes": batch.header.size_bytes,
                    "codec": batch.header.codec.name.lower(),
                }
                for batch in batches
            ] == golden["batches"]


def test_checksums_hold_until_a_bit_flips() -> None:
    for golden in _GOLDEN:
        with about(golden["name"]):
            data = bytearray(bytes.fromhex(golden["bytes"]))
            assert all(crc_is_valid(batch) for batch in read_batches(data))
            data[-1] ^= 0x10
            assert not crc_is_valid(read_batches(data)[-1])


def test_copies_keep_every_record() -> None:
    """Whatever lane and codec: the copies hold the same keys, values, headers and timestamps, in order."""
    for golden in _GOLDEN:
        for target_codec in (None, *Codec):
            with about(golden["name"], target_codec):
                data = bytes.fromhex(golden["bytes"])
                policy = CopyPolicy(target=TargetTopicLimits(codec=target_codec))
                prepared = prepare(data, wanted_offset=0, policy=policy)
                assert prepared.fault is None
                assert prepared.next_offset == golden["batches"][-1]["next_offset"]
                copies = [
                    record
                    for outgoing in prepared.batches
                    for record in decode_batch(read_batches(sealed(outgoing, _SEAL))[0])
                ]
                visible = [] if golden["batches"][0]["is_control"] else _expected(golden)
                assert [record[1:] for record in copies] == [record[1:] for record in visible]
                mapped = [
                    outgoing.runs[0].first_source_offset if outgoing.is_dense else None
                    for outgoing in prepared.batches
                ]
                assert all(
                    first is None or first in {record.offset for record in visible} for first in mapped
                )


def test_only_fit_batches_go_raw() -> None:
    raw = set()
    for golden in _GOLDEN:
        prepared = prepare(bytes.fromhex(golden["bytes"]), wanted_offset=0, policy=CopyPolicy())
        if any(batch.lane is Lane.RAW for batch in prepared.batches):
            raw.add(golden["name"])
    # Java's compaction writes uncompressed old messages again, as v2 batches of one record.
    assert raw == {f"v2 {codec.name.lower()} CreateTime" for codec in Codec} | {
        "v2 none transactional",
        "v1 none compacted",
    }
