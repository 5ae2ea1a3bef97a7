"""Sample output on a page is what the command prints: on a terminal of 80 columns, for the answers below."""

import contextvars
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as configsync
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as heartbeat
from twinlog.api.source.v1 import source_service_pb2 as source
from unit.cli.snapshots.recorded import FLOW, LONG_AFTER, Recorded, run

ROOT = Path(__file__).parents[3]
CLUSTERS = [types_pb2.ClusterStatus(alias=alias, reachable=True) for alias in ("A", "B")]


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
        "ListGaps": [source.ListGapsResponse()],
        "ListGroups": [
            checkpoint.ListGroupsResponse(
                ready_flows=[FLOW],
                clusters=CLUSTERS,
                summaries=[
                    checkpoint.GroupSummary(flow=FLOW, group_count=3, partitions_by_verdict={"PRESERVED": 14})
                ],
            )
        ],
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


def samples(page: str) -> list[tuple[str, str]]:
    """Each block of a page that begins with a command at a prompt, and what it shows below."""
    blocks = re.findall(
        r"^```\n\$ twinlog ([^\n]*)\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL
    )
    return [(command, shown) for command, shown in blocks]


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md", "docs/status.md"])
def test_a_sample_is_what_the_command_prints(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TWINLOG_CONFIG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    found = samples(page)
    assert found
    for command, shown in found:
        told = contextvars.copy_context().run(run, command.split(), Recorded(answers={**healthy()}), 80)
        assert told.removeprefix("exit 0\n").rstrip("\n") == shown.rstrip("\n")
