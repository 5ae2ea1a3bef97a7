"""README: `twinlog verify` proves that what both clusters hold is equal, or names the record that is not."""

import json
import time
from typing import Any

from e2e.conftest import MirrorRig
from integration.in_process import twinlog
from twinlog.batches import Codec, NewRecord
from twinlog.kafka.ports import NewTopic
from twinlog.testing.brokers import awkward_records, eventually, make_topics, unique_name, write_batches


async def _verify(mirror: MirrorRig, topic: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    flow = f"{mirror.source_alias}->{mirror.target_alias}"
    command = ["verify", flow, "--config", str(mirror.run.file), "--topic", topic, "-o", "json"]
    answer = await twinlog(*command, *arguments)
    return answer.returncode, json.loads(answer.stdout)


async def test_a_copy_of_a_running_flow_is_proven_and_one_foreign_record_is_named(mirror: MirrorRig) -> None:
    """All codecs, transactions, aborted records; then somebody writes into the copy."""
    topic, now_ms = unique_name("e2e-verified"), int(time.time_ns() // 1_000_000)
    async with mirror.source() as source:
        await make_topics(source, NewTopic(name=topic, partition_count=2, replication_factor=1))
    records = awkward_records(now_ms)
    await write_batches(
        mirror.pair.a, topic, [(number % 2, codec, records) for number, codec in enumerate(Codec)]
    )
    await write_batches(mirror.pair.a, topic, [(0, Codec.LZ4, records)], transactional_id=topic, abort=True)
    await write_batches(mirror.pair.a, topic, [(0, Codec.ZSTD, records)], transactional_id=topic)

    async def proven() -> dict[str, Any] | None:
        exit_code, report = await _verify(mirror, topic)
        assert exit_code in (0, 3), report
        return report if exit_code == 0 else None

    report = await eventually(proven)
    assert report["verdict"] == "EQUAL"
    assert report["records"] == len(records) * 6
    assert report["not_compared"] == []
    unopened = sum(each["unopened_records"] for each in report["partitions"])
    assert unopened > 0, "batches that were copied unopened are compared unopened"

    foreign = NewRecord(b"k", b"not of the source", now_ms)
    await write_batches(mirror.pair.b, mirror.remote(topic), [(1, Codec.NONE, [foreign])])
    exit_code, report = await _verify(mirror, topic, "--show")
    assert exit_code == 1, report
    (difference,) = report["differences"]
    assert (difference["kind"], difference["partition"], difference["source_offset"]) == ("FOREIGN", 1, None)
    assert difference["target_record"]["value"] == "not of the source"
