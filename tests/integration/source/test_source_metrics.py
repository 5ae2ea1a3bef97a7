"""What Prometheus reads from the source service is what was copied."""

import json
import urllib.request
from asyncio import to_thread
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from integration.source.source_rig import Rig, open_rig
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin
from twinlog.testing.service_process import CALL_SECONDS, ServiceProcess

RECORDS = 300
OLD_SECONDS = 3600.0
"""How old the rig's records are when they are produced."""


@pytest.fixture
async def rig(kafka_pair: KafkaPair, tmp_path: Path) -> AsyncIterator[Rig]:
    # Copies with offsets of their own; of the others: test_source_preserved.py.
    own = {"twinlog.offsets": "translated"}
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path, **own) as opened:
        yield opened


class Scrape:
    """One answer of the endpoint."""

    def __init__(self, text: str) -> None:
        self._samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def all(self, name: str, **labels: str) -> list[float]:
        return [
            sample.value
            for sample in self._samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def sum(self, name: str, **labels: str) -> float:
        """0 when there is no such series."""
        return sum(self.all(name, **labels))

    def one(self, name: str, **labels: str) -> float:
        (value,) = self.all(name, **labels)
        return value


async def scrape(service: ServiceProcess) -> Scrape:
    lines = [json.loads(line) for line in service.log().splitlines() if "metrics_listening" in line]
    address = lines[0]["address"]

    def read() -> str:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=CALL_SECONDS) as answer:
            return str(answer.read().decode())

    return Scrape(await to_thread(read))


async def test_the_endpoint_tells_what_was_copied_lost_tried_again_and_limited(rig: Rig) -> None:
    topic, small = "counted", "too-small"
    await rig.create(topic, 2)
    await rig.create(small, max_message_bytes="2000000")
    rig.extra |= {
        "topics": f"{topic},{small}",
        "config.properties.exclude": "max.message.bytes",
        "twinlog.source.metrics.listen": "127.0.0.1:0",
        "twinlog.epoch.seconds": "1",
    }
    for partition in range(2):
        await rig.produce(topic, [b"x" * 100] * RECORDS, partition=partition, batch_bytes=4096)
    await rig.produce(small, [b"y" * 1_500_000], batch_bytes=1_900_000)
    async with rig.configsync() as configsync, rig.running(configsync) as service:
        stub = SourceServiceStub(service.channel)
        scope = pb.Scope(flow=rig.flow, source_topic=topic)
        copied = {
            "twinlog_source_cluster": rig.a,
            "twinlog_target_cluster": rig.b,
            "messaging_destination_name": rig.remote(topic),
        }
        flow = {name: copied[name] for name in ("twinlog_source_cluster", "twinlog_target_cluster")}

        async def counted() -> bool:
            seen = await scrape(service)
            assert seen.sum("twinlog_replication_records_total", **copied) == 2 * RECORDS
            assert seen.sum("twinlog_replication_lag", **copied) == 0
            assert seen.sum("twinlog_offset_sync_records_total", **flow) > 0
            return True

        await rig.same(topic, 2)
        await eventually(counted)
        await stub.SetThrottle(
            pb.SetThrottleRequest(scope=scope, bytes_per_second=123_456, by="test"), timeout=CALL_SECONDS
        )

        async def told() -> bool:
            seen = await scrape(service)
            assert seen.sum("twinlog_replication_lane_records_total", **copied) == 2 * RECORDS
            assert seen.all("twinlog_replication_lag", **copied) == [0, 0]
            assert seen.all("twinlog_replication_lag_time_seconds", **copied) == [0, 0]
            status = await rig.flow_status(service)
            assert seen.sum("twinlog_replication_io_bytes_total", **flow) == status.bytes > 2 * RECORDS * 100
            assert seen.sum("twinlog_replication_transactions_total", twinlog_outcome="committed", **flow) > 0
            assert seen.one("twinlog_replication_throttle_bytes_per_second", **copied) == 123_456
            for name in ("twinlog_replication_latency", "twinlog_replication_record_age"):
                shortest, mean, longest = (
                    seen.one(f"{name}_{figure}_seconds", **copied) for figure in ("min", "avg", "max")
                )
                assert OLD_SECONDS - 1 < shortest <= mean <= longest < OLD_SECONDS + 300
                samples = seen.one(f"{name}_seconds_count", **copied)
                assert 0 < samples <= 2 * RECORDS
                assert shortest <= seen.one(f"{name}_seconds_sum", **copied) / samples <= longest
            return True

        await eventually(told)

        async def too_large_is_tried_again() -> bool:
            now = await scrape(service)
            tried = now.sum("twinlog_replication_failures_total", error_type="RECORD_TOO_LARGE", **flow)
            epochs = now.sum("twinlog_pipeline_batch_duration_seconds_count", **flow)
            states = {
                state: now.sum("twinlog_replication_partitions", twinlog_state=state, **flow)
                for state in ("RUNNING", "FAULTED")
            }
            return tried >= 1 and epochs >= 1 and states == {"RUNNING": 2, "FAULTED": 1}

        await eventually(too_large_is_tried_again)

        await stub.PauseReplication(pb.PauseReplicationRequest(scope=scope, by="test"), timeout=CALL_SECONDS)

        async def paused() -> bool:
            states = {each.state for each in await rig.partitions(service, topic)}
            return states == {pb.PARTITION_STATE_PAUSED}

        await eventually(paused)
        await rig.produce(topic, [b"lost"] * 40)
        await retry_admin(lambda: rig.source.delete_records({TopicPartition(topic, 0): RECORDS + 30}))
        await stub.ResumeReplication(pb.ResumeReplicationRequest(scope=scope), timeout=CALL_SECONDS)

        async def lost() -> bool:
            now = await scrape(service)
            gone = now.sum("twinlog_replication_lost_total", error_type="RETENTION", **copied)
            records = now.sum("twinlog_replication_records_total", **copied)
            assert (gone, records) == (30, 2 * RECORDS + 10)
            return True

        await eventually(lost)
