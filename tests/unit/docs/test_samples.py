"""Sample output on a page is what the command prints: on a terminal of 80 columns, for the answers below."""

import contextvars
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.common.v1 import owners_service_pb2 as owners
from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as configsync
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as heartbeat
from twinlog.api.source.v1 import source_service_pb2 as source
from unit.cli.snapshots.recorded import FLOW, LONG_AFTER, Recorded, run

ROOT = Path(__file__).parents[3]
CLUSTERS = [types_pb2.ClusterStatus(alias=alias, reachable=True) for alias in ("A", "B")]


PARTITIONS = [("orders", 0, 10_412), ("orders", 1, 9_876), ("payments.eu", 0, 3_310)]
"""Topic, partition, and the end of its log on A."""


def copies() -> list[source.PartitionStatus]:
    made = [
        source.PartitionStatus(
            flow=FLOW,
            source=types_pb2.TopicPartition(topic=topic, partition=number),
            target_topic=f"A.{topic}",
            state=source.PARTITION_STATE_RUNNING,
            position=end,
            source_end_offset=end,
            lag_records=0,
            records_per_second=end / 100,
            bytes_per_second=end * 10,
            lane=source.LANE_RAW,
            offsets="preserved",
            caught_up_in=Duration(),
        )
        for topic, number, end in PARTITIONS
    ]
    for each in made:
        for stamp in (each.as_of, each.source_end_as_of, each.oldest_record_at):
            stamp.FromSeconds(LONG_AFTER)
    return made


def progress() -> list[checkpoint.GroupPartition]:
    made = [
        checkpoint.GroupPartition(
            flow=FLOW,
            group="billing",
            source=types_pb2.TopicPartition(topic=topic, partition=number),
            target=types_pb2.TopicPartition(topic=f"A.{topic}", partition=number),
            upstream_offset=end - number * 12,
            downstream_offset=end - number * 12,
            offset_on_target=end - number * 12,
            verdict=checkpoint.VERDICT_PRESERVED,
            source_lag=number * 12,
            target_lag=number * 12,
            committed_on_target=True,
        )
        for topic, number, end in PARTITIONS
    ]
    for each in made:
        each.as_of.FromSeconds(LONG_AFTER)
    return made


def healthy() -> dict[str, Sequence[Message]]:
    flow = source.FlowStatus(
        flow=FLOW,
        partitions_by_state={"RUNNING": 38},
        records=419_079,
        records_per_second=1_240,
        bytes_per_second=1_300_000,
        lag_records=12,
        caught_up_in=Duration(),
        exactly_once=True,
        clusters=CLUSTERS,
    )
    # Times that are ahead are 0 s ago on any day.
    for stamp in (flow.source_ends_as_of, flow.source_grew_at, flow.last_copied_at, flow.oldest_record_at):
        stamp.FromSeconds(LONG_AFTER)
    return {
        "source.ListFlows": [source.ListFlowsResponse(flows=[flow])],
        "ListOwners": [owners.ListOwnersResponse()],
        "ListGaps": [source.ListGapsResponse()],
        "ListGroups": [
            checkpoint.ListGroupsResponse(
                groups=progress(),
                ready_flows=[FLOW],
                clusters=CLUSTERS,
                summaries=[
                    checkpoint.GroupSummary(flow=FLOW, group_count=3, partitions_by_verdict={"PRESERVED": 14})
                ],
            )
        ],
        "ListPartitions": [source.ListPartitionsResponse(partitions=copies())],
        "ListMoves": [checkpoint.ListMovesResponse()],
        "configsync.ListFlows": [
            configsync.ListFlowsResponse(
                flows=[configsync.FlowStatus(flow=FLOW, clusters=CLUSTERS, topics_by_state={"READY": 7})]
            )
        ],
        "GetRules": [configsync.GetRulesResponse(rules=configsync.Rules(flow=FLOW))],
        "GetTopology": [heartbeat.GetTopologyResponse(clusters=CLUSTERS)],
        "ListDelays": [
            heartbeat.ListDelaysResponse(
                delays=[
                    heartbeat.FlowDelay(
                        flow=FLOW,
                        state=heartbeat.PATH_STATE_ALIVE,
                        last_delay=Duration(nanos=90_000_000),
                        age=Duration(nanos=400_000_000),
                    )
                ]
            )
        ],
    }


PAGES = ("README.md", *(f"docs/{name}.md" for name in ("quickstart", "control")))


def samples(page: str) -> list[tuple[str, str]]:
    """Each block of a page that begins with a command at a prompt, and what it shows below."""
    blocks = re.findall(
        r"^```\n\$ twinlog ([^\n]*)\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL
    )
    return [(command, shown) for command, shown in blocks]


@pytest.mark.parametrize("page", PAGES)
def test_a_sample_is_what_the_command_prints(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TWINLOG_CONFIG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    found = samples(page)
    assert found
    for command, shown in found:
        told = contextvars.copy_context().run(run, shlex.split(command), Recorded(answers={**healthy()}), 80)
        assert told.removeprefix("exit 0\n").rstrip("\n") == shown.rstrip("\n")
