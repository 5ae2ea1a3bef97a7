"""Batches that the leader refuses again and again: how often they are sent, and when they fail."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from kio.schema.errors import ErrorCode

from twinlog.batches import NewRecord, build_batch
from twinlog.config import load
from twinlog.errors import KafkaError
from twinlog.kafka.deadline import pause
from twinlog.kafka.protocol.requests import API_KEYS
from twinlog.kafka.raw import RawProducer
from twinlog.model import TopicPartition
from twinlog.testing.broker import FakeKafka
from twinlog.testing.broker.codec import Request
from twinlog.testing.broker.partitions import Node
from twinlog.testing.raw_copying import open_session
from twinlog_source.task.writing.transport import producer_settings


class Refused(NamedTuple):
    sent: dict[str, "asyncio.Future[int]"]
    """A batch for each target, as the settings of its producer say."""
    times: Counter[str]
    """How often the broker got it."""


@asynccontextmanager
async def refused_batches(directory: Path, **settings: Mapping[str, str]) -> AsyncIterator[Refused]:
    refused = Refused({}, Counter())

    def count(_node: Node, request: Request) -> None:
        if request.api_key == API_KEYS["produce"]:
            refused.times[request.client_id or ""] += 1

    async with FakeKafka() as kafka, AsyncExitStack() as opened:
        kafka.cluster.create_topic("thin")
        kafka.on_request = count
        kafka.faults.begin(api="produce", error=ErrorCode.not_enough_replicas)
        lines = [f"clusters = A, {', '.join(settings)}", f"A.bootstrap.servers = {kafka.bootstrap}"]
        for alias, keys in settings.items():
            lines += [f"A->{alias}.enabled = true", f"{alias}.bootstrap.servers = {kafka.bootstrap}"]
            lines += [f"{alias}.producer.{key} = {value}" for key, value in keys.items()]
        file = directory / "mm2.properties"
        file.write_text("\n".join(lines))
        for flow in load(file, environ={}).enabled_flows:
            alias, properties = flow.flow.target, dict(flow.clients.data_producer.properties)
            session = await opened.enter_async_context(
                open_session(alias, {**properties, "client.id": alias})
            )
            producer = RawProducer(session, producer_settings(properties, alias=alias))
            await opened.enter_async_context(producer)
            batch = build_batch([NewRecord(None, b"refused", 1)])
            refused.sent[alias] = producer.send(TopicPartition("thin", 0), batch)
        yield refused


async def test_a_refused_record_is_sent_again_as_often_as_retry_backoff_ms_says(tmp_path: Path) -> None:
    ever = {"delivery.timeout.ms": "6000000"}
    quick, slow = {"retry.backoff.ms": "10", **ever}, {"retry.backoff.ms": "3000000", **ever}
    async with refused_batches(tmp_path, quick=quick, slow=slow) as refused:
        await pause(200)
        assert refused.times["quick"] > 100
        assert refused.times["slow"] <= 1
        assert not any(each.done() for each in refused.sent.values())


async def test_a_batch_that_is_refused_again_and_again_fails_after_delivery_timeout_ms(
    tmp_path: Path,
) -> None:
    hasty = {"delivery.timeout.ms": "1500", "request.timeout.ms": "1000"}
    async with refused_batches(tmp_path, hasty=hasty, patient={"delivery.timeout.ms": "6000000"}) as refused:
        with pytest.raises(KafkaError):
            async with asyncio.timeout(2):
                await refused.sent["hasty"]
        assert not refused.sent["patient"].done()
