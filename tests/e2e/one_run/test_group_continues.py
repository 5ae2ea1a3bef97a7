"""README: a consumer group that stops on the source continues on the target at its very next record."""

import grpc
import pytest

from e2e.conftest import MirrorRig
from twinlog.api.checkpoint.v1.checkpoint_service_pb2 import (
    VERDICT_EXACT,
    VERDICT_PRESERVED,
    ListGroupsRequest,
    Verdict,
)
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.demo.comparison import read_some
from twinlog.kafka.ports import NewTopic
from twinlog.testing.brokers import eventually, retry_admin, unique_name, write_batches

RECORDS = 400


@pytest.mark.parametrize(("kind", "verdict"), [("same", VERDICT_PRESERVED), ("translated", VERDICT_EXACT)])
async def test_a_group_continues_on_the_target(
    mirror: MirrorRig, kind: str, verdict: Verdict.ValueType
) -> None:
    """At the same offset where the copy has its source's; else at the one that is translated."""
    topic, group = unique_name(f"e2e-group-{kind}"), unique_name("app")
    remote = mirror.remote(topic)
    async with mirror.source() as source:
        new = NewTopic(name=topic, partition_count=1, replication_factor=1)
        await retry_admin(lambda: source.create_topics([new]))
        now_ms = SystemClock().now_ms()
        for start in range(0, RECORDS, 20):
            records = [NewRecord(None, b"%d" % i, now_ms) for i in range(start, start + 20)]
            await write_batches(mirror.pair.a, topic, [(0, Codec.GZIP, records)], transactional_id=topic)
        on_a = await read_some(
            "A",
            mirror.pair.a.client_properties(),
            group=group,
            topic=topic,
            at_least=RECORDS // 2,
            max_idle_polls=60,
            poll_records=30,
        )
        assert 0 < on_a.records < RECORDS

        async def settled() -> bool:
            async with grpc.aio.insecure_channel(mirror.run.endpoints["checkpoint"]) as channel:
                answer = await CheckpointServiceStub(channel).ListGroups(
                    ListGroupsRequest(group=group), timeout=30
                )
            assert [row.upstream_offset for row in answer.groups] == list(on_a.next_offsets.values())
            if kind == "same":
                assert all(row.downstream_offset == row.upstream_offset for row in answer.groups)
            return all(row.verdict == verdict and row.committed_on_target for row in answer.groups)

        await eventually(settled)
        on_b = await read_some(
            "B",
            mirror.pair.b.client_properties(),
            group=group,
            topic=remote,
            at_least=RECORDS - on_a.records,
            max_idle_polls=60,
        )
    assert on_b.first[0][2] == b"%d" % on_a.records
    assert on_a.records + on_b.records == RECORDS
