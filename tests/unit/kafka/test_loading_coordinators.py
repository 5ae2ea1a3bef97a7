"""Coordinators that read their log again, as after an outage: they answer that they do."""

from collections.abc import Awaitable, Callable, Mapping

import pytest

from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import short_patience
from twinlog.kafka.ports import CommittedOffset, KafkaCluster
from twinlog.model import TopicPartition
from twinlog.testing.broker import FakeKafka

PARTITION = TopicPartition("topic", 0)
LOADING_SECONDS = 4.0

CALLS: Mapping[str, Callable[[KafkaCluster], Awaitable[Mapping[str, object]]]] = {
    "offset_fetch": lambda cluster: cluster.group_offsets(["g"]),
    "describe_groups": lambda cluster: cluster.describe_groups(["g"]),
    "list_groups": lambda cluster: cluster.list_groups(),
}


@pytest.mark.parametrize("api", CALLS)
async def test_a_coordinator_that_loads_is_waited_for_while_other_brokers_are_silent(api: str) -> None:
    async with FakeKafka() as kafka, open_cluster("B", {"bootstrap.servers": kafka.bootstrap}) as cluster:
        await cluster.alter_group_offsets("g", {PARTITION: CommittedOffset(next_offset=1)})
        kafka.faults.begin(api=api, error=ErrorCode.coordinator_load_in_progress, seconds=LOADING_SECONDS)
        with short_patience(True):
            found = await CALLS[api](cluster)
    assert not isinstance(found["g"], KafkaError)


async def test_a_list_that_a_coordinator_loads_for_too_long_says_so() -> None:
    async with FakeKafka() as kafka, open_cluster("B", {"bootstrap.servers": kafka.bootstrap}) as cluster:
        kafka.faults.begin(api="list_groups", error=ErrorCode.coordinator_load_in_progress)
        with short_patience(True), pytest.raises(KafkaError, match="moving or loading"):
            await cluster.list_groups()
