"""What each command prints, and what it asks: recorded in tests/golden/cli.

`SNAPSHOTS=write pytest tests/unit/cli/snapshots` records it anew. A field of `-o json` that changes its name
or goes away breaks programs of others.
"""

import contextvars
import os
import re
from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path

import pytest
from google.protobuf.message import Message

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.common.v1 import owners_service_pb2 as owners
from twinlog.api.configsync.v1 import configsync_service_pb2 as configsync
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.errors import NotFoundError, TransientKafkaError, TwinlogError
from unit.cli.snapshots.recorded import Recorded, bare, full, run

GOLDEN = Path(__file__).parents[3] / "golden" / "cli"


def plan(*, blocked: bool) -> checkpoint.MovePlan:
    made: checkpoint.MovePlan = full(checkpoint.MovePlan)
    made.partitions.append(bare(checkpoint.MovePartition))
    made.backlog.append(bare(checkpoint.TopicBacklog))
    if not blocked:
        del made.blockers[:]
    return made


def report(*, complete: bool) -> checkpoint.MoveReport:
    made: checkpoint.MoveReport = full(checkpoint.MoveReport)
    made.plan.CopyFrom(plan(blocked=False))
    made.already_done = False
    if complete:
        del made.left_behind[:]
    return made


def run_events(response: type[Message], *, complete: bool) -> list[Message]:
    made: list[Message] = [response(step=full(checkpoint.MoveStep, number)) for number in (1, 2, 3, 4)]
    return [
        *made,
        response(part=full(checkpoint.MovePlanPart, 3)),
        response(report=report(complete=complete)),
    ]


PARTITIONS = [full(source.PartitionStatus, 1), full(source.PartitionStatus, 4), bare(source.PartitionStatus)]
PARTITIONS[1].proof.ClearField("differences")
GROUPS = [
    full(checkpoint.GroupPartition, 1),
    full(checkpoint.GroupPartition, 5),
    bare(checkpoint.GroupPartition),
]
FLOWS = [full(source.FlowStatus), bare(source.FlowStatus)]
ACTIONS = [
    *(full(configsync.PlannedAction, number) for number in (1, 3, 4, 10)),
    bare(configsync.PlannedAction),
]
RULES = [full(configsync.Rule), bare(configsync.Rule)]
RULES[0].key, RULES[1].key, RULES[1].value = "topics", "groups", ".*"

ANSWERS: dict[str, list[Message]] = {
    "ListPartitions": [source.ListPartitionsResponse(partitions=PARTITIONS)],
    "source.ListFlows": [source.ListFlowsResponse(flows=FLOWS)],
    "ListGaps": [
        source.ListGapsResponse(
            gaps=[full(source.LedgerGap), bare(source.LedgerGap)], unknown=[full(source.UnknownLedger)]
        )
    ],
    "SetPositions": [
        source.SetPositionsResponse(
            applied=True, changes=[full(source.PositionChange), bare(source.PositionChange)]
        )
    ],
    "Calibrate": [
        source.CalibrateResponse(
            topic="mm2-calibration.A.1f.internal",
            most_bytes=10**9,
            seconds=60,
            source_round_trip_ms=0.42,
            target_round_trip_ms=61.3,
            speeds=[source.TargetSpeed(slots=n, bytes_per_second=n * 21_000_000) for n in (1, 2)],
            max_slots=2,
        )
    ],
    "ListGroups": [full(checkpoint.ListGroupsResponse)],
    "ExplainGroup": [
        checkpoint.ExplainGroupResponse(
            explanations=[full(checkpoint.GroupExplanation), bare(checkpoint.GroupExplanation)]
        )
    ],
    "TranslateOffsets": [
        checkpoint.TranslateOffsetsResponse(
            translations=[full(checkpoint.OffsetTranslation), bare(checkpoint.OffsetTranslation)]
        )
    ],
    "PlanMove": [
        checkpoint.PlanMoveResponse(step=full(checkpoint.MoveStep)),
        checkpoint.PlanMoveResponse(part=full(checkpoint.MovePlanPart, 5)),
        checkpoint.PlanMoveResponse(plan=plan(blocked=True)),
    ],
    "RunFailover": run_events(checkpoint.RunFailoverResponse, complete=False),
    "RunFailback": run_events(checkpoint.RunFailbackResponse, complete=True),
    "WatchMove": run_events(checkpoint.WatchMoveResponse, complete=False),
    "PlanSync": [configsync.PlanSyncResponse(plan=full(configsync.Plan))],
    "ListAcls": [
        configsync.ListAclsResponse(
            entries=[*(full(configsync.AclEntry, n) for n in (1, 5)), bare(configsync.AclEntry)]
        )
    ],
    "ListTopics": [
        configsync.ListTopicsResponse(
            topics=[
                full(configsync.ReplicatedTopic, 1),
                full(configsync.ReplicatedTopic, 2),
                bare(configsync.ReplicatedTopic),
            ]
        )
    ],
    "ExplainTopic": [
        configsync.ExplainTopicResponse(
            explanations=[full(configsync.TopicExplanation), bare(configsync.TopicExplanation)]
        )
    ],
    "GetRules": [
        configsync.GetRulesResponse(
            rules=configsync.Rules(flow=full(configsync.Rules).flow, version=7, rules=RULES)
        )
    ],
    "UpdateRules": [
        configsync.UpdateRulesResponse(
            rules=full(configsync.Rules), stopped_topics=["orders", "paid"], stopped_topic_count=12
        )
    ],
}
ANSWERS["PlanSync"][0].plan.ClearField("actions")  # type: ignore[attr-defined]
ANSWERS["PlanSync"][0].plan.actions.extend(ACTIONS)  # type: ignore[attr-defined]
EMPTY: dict[str, list[Message]] = {
    "ListPartitions": [source.ListPartitionsResponse()],
    "source.ListFlows": [source.ListFlowsResponse(flows=[bare(source.FlowStatus)])],
    "ListOwners": [owners.ListOwnersResponse()],
    "ListGaps": [source.ListGapsResponse()],
    "SetPositions": [source.SetPositionsResponse()],
    "AcknowledgeGaps": [source.AcknowledgeGapsResponse()],
    "AcknowledgeForeignWrites": [source.AcknowledgeForeignWritesResponse()],
    "PauseReplication": [source.PauseReplicationResponse()],
    "ResumeReplication": [source.ResumeReplicationResponse()],
    "SetThrottle": [source.SetThrottleResponse()],
    "Calibrate": [source.CalibrateResponse()],
    "ListGroups": [bare(checkpoint.ListGroupsResponse)],
    "ExplainGroup": [checkpoint.ExplainGroupResponse()],
    "PlanMove": [checkpoint.PlanMoveResponse(plan=bare(checkpoint.MovePlan))],
    "GetMove": [checkpoint.GetMoveResponse()],
    "ListMoves": [checkpoint.ListMovesResponse(moves=[bare(checkpoint.FlowMove)])],
    "CancelMove": [checkpoint.CancelMoveResponse()],
    "AbortMove": [checkpoint.AbortMoveResponse()],
    "configsync.ListFlows": [configsync.ListFlowsResponse(flows=[bare(configsync.FlowStatus)])],
    "PlanSync": [configsync.PlanSyncResponse(plan=bare(configsync.Plan))],
    "ApplySync": [configsync.ApplySyncResponse()],
    "ListAcls": [configsync.ListAclsResponse()],
    "ListTopics": [configsync.ListTopicsResponse()],
    "ExplainTopic": [configsync.ExplainTopicResponse()],
    "GetRules": [configsync.GetRulesResponse(rules=bare(configsync.Rules))],
    "UpdateRules": [configsync.UpdateRulesResponse(rules=bare(configsync.Rules))],
}

COMMANDS = (
    ["partitions"],
    ["partitions", "A->B", "--topic", "orders", "--trouble"],
    ["positions", "get", "A->B"],
    ["positions", "set", "A->B", "--topic", "orders", "--to", "earliest"],
    ["positions", "set", "A->B", "--topic", "orders", "--to", "2026-01-31T12:00:00Z", "--dry-run"],
    ["pause"],
    ["pause", "A->B", "--topic", "orders"],
    ["pause", "--topic", "orders"],
    ["resume", "A->B"],
    ["resume", "A->B", "--all"],
    ["throttle"],
    ["throttle", "A->B", "20M", "--topic", "orders"],
    ["throttle", "A->B", "none"],
    ["calibrate", "A->B", "--dry-run"],
    ["calibrate", "A->B", "--yes"],
    ["move"],
    ["move", "A->B", "--to", "box-2", "--dry-run"],
    ["move", "A->B", "--to", "box-2", "--service", "checkpoint", "--yes"],
    ["gaps"],
    ["gaps", "--all", "--topic", "orders", "--partition", "1"],
    ["gaps", "ack", "A->B", "--all"],
    ["foreign"],
    ["foreign", "ack", "A->B", "--dry-run"],
    ["groups"],
    ["groups", "A->B", "billing", "--min-lag", "1000", "--sort", "lag"],
    ["explain", "group", "billing"],
    ["explain", "topic", "A->B", "orders"],
    ["translate", "A->B", "orders:3:1234", "orders:3@2026-01-31T12:00:00Z"],
    ["translate", "--back", "A.orders:3:1250"],
    ["plan"],
    ["plan", "A->B", "--skips", "--check", "--scope", "topics"],
    ["apply", "A->B", "--plan", "plan_id-1"],
    ["apply", "A->B", "--yes"],
    ["acls"],
    ["acls", "B"],
    ["rules", "get"],
    ["rules", "get", "A->B", "topics"],
    ["rules", "diff"],
    ["rules", "set", "A->B", "topics", "orders"],
    ["rules", "set", "A->B", "topics", "orders", "--yes"],
    ["rules", "set", "A->B", "groups", "", "--dry-run"],
    ["rules", "reset", "A->B", "topics", "--dry-run"],
    ["topics"],
    ["topics", "A->B", "--waiting"],
    ["topology"],
    ["status"],
    ["status", "--check", "--strict"],
    ["failover", "plan", "A->B", "--group", "billing", "--fence"],
    ["failover", "run", "A->B", "--yes"],
    ["failback", "run", "A->B", "--yes"],
    ["failover", "watch", "A->B"],
    ["failover", "status", "A->B"],
    ["failover", "stop", "A->B"],
    ["failback", "give-up", "A->B"],
)
WATCHES = (["partitions", "--watch"], ["groups", "--watch"])
GONE = NotFoundError("there is no such flow any more")
IN_TURN: dict[str, list[Message | TwinlogError]] = {
    "ListPartitions": [
        source.ListPartitionsResponse(partitions=PARTITIONS),
        TransientKafkaError("it is away"),
        source.ListPartitionsResponse(partitions=[full(source.PartitionStatus, 6), PARTITIONS[1]]),
        GONE,
    ],
    "ListGroups": [
        checkpoint.ListGroupsResponse(groups=GROUPS[:2], flows=[full(checkpoint.FlowProgress)]),
        TransientKafkaError("it is away"),
        checkpoint.ListGroupsResponse(groups=GROUPS[1:], flows=[full(checkpoint.FlowProgress)]),
        GONE,
    ],
}
IN_TURN["ListPartitions"][2].partitions[0].source.partition = 1  # type: ignore[union-attr]


def snapshot(words: Sequence[str]) -> str:
    def told(title: str, words: Sequence[str], answers: dict[str, list[Message]], columns: int | None) -> str:
        watched = {method: [*turns] for method, turns in IN_TURN.items()} if "--watch" in words else {}
        recorded = Recorded(answers=dict(answers), in_turn=watched)
        words = [*words, "--every", "0.2"] if watched else words
        # Each command sets variables of its context.
        text = contextvars.copy_context().run(run, words, recorded, columns)
        asked = "".join(f"asks {each}\n" for each in dict.fromkeys(sorted(recorded.asked)))
        return f"==== {title}\n{asked if columns is None else ''}{text}"

    as_json = [*words, "-o", "json"]
    parts = [told("json", as_json, ANSWERS, None), told("in a pipe", words, ANSWERS, None)]
    if words not in WATCHES:
        parts[1:1] = [told("json, nothing there", as_json, {**ANSWERS, **EMPTY}, None)]
        parts += [
            told("nothing there", words, {**ANSWERS, **EMPTY}, None),
            told("80 columns", words, ANSWERS, 80),
            told("160 columns", words, ANSWERS, 160),
        ]
    return f"$ twinlog {' '.join(words)}\n" + "".join(parts)


def file_of(words: Sequence[str]) -> Path:
    return GOLDEN / f"{re.sub(r'[^a-zA-Z0-9]+', '-', ' '.join(words)).strip('-')}.txt"


@pytest.mark.parametrize("words", [*COMMANDS, *WATCHES], ids=" ".join)
def test_commands_ask_and_print_what_they_did(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TWINLOG_CONFIG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    told = snapshot(words)
    if os.environ.get("SNAPSHOTS") == "write":
        file_of(words).write_text(told)
    was = file_of(words).read_text()
    # Not compared by pytest, whose diff of long texts takes minutes.
    changed = [] if told == was else list(unified_diff(was.splitlines(), told.splitlines(), lineterm="", n=1))
    if changed:
        wanted = "as you want it? SNAPSHOTS=write .venv/bin/pytest tests/unit/cli/snapshots records it"
        pytest.fail("\n".join((*changed[:60], wanted)), pytrace=False)
