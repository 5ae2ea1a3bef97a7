"""What a failover of a flow would do now, as the checkpoint service plans it, for the migration view.

Invariants: a flow is planned once at a time, for all; an answer is young enough for `FRESH_SECONDS`, and
only flows that the services told of are planned. The rows of groups are counted, not kept.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import grpc

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.cli.common.call import Services
from twinlog.cli.common.fields import Fields, as_json, table, value_of
from twinlog.cli.common.names import parse_flow
from twinlog.cli.moves.plan_outcome import THERE, plan_facts
from twinlog.cli.verdict.moving import plan_checks
from twinlog.clock import Clock
from twinlog.errors import TransientKafkaError

FRESH_SECONDS = 10.0
PLAN_SECONDS = 120.0
"""A plan of thousands of groups looks at each of them."""
AT_ONCE = 2
MOST_TOPICS = 50


@dataclass(slots=True, kw_only=True)
class Plans:
    """For one event loop."""

    endpoint: str
    open_to: Callable[[str, str], grpc.aio.Channel]
    clock: Clock
    _known: dict[str, tuple[float, dict[str, Any]]] = field(default_factory=dict)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def of(self, flow: str) -> Mapping[str, Any]:
        """The plan. Raises TwinlogError, as the service told it. `flow` is one that services told of."""
        async with self._locks.setdefault(flow, asyncio.Lock()):
            at, plan = self._known.get(flow, (float("-inf"), {}))
            if self.clock.monotonic() - at > FRESH_SECONDS:
                async with self._room:
                    plan = await self._ask(flow)
                self._known[flow] = self.clock.monotonic(), plan
            return plan

    async def _ask(self, flow: str) -> dict[str, Any]:
        request = pb2.PlanMoveRequest(flow=parse_flow(flow), kind=pb2.MOVE_KIND_FAILOVER)
        rows = PlanRows()
        async with Services(open_to=lambda name: self.open_to(name, self.endpoint)) as at:
            async for event in at.checkpoint.PlanMove(request, timeout=PLAN_SECONDS):
                if event.HasField("part"):
                    rows.take(event.part.partitions, event.part.backlog)
                elif event.HasField("plan"):
                    rows.take(event.plan.partitions, event.plan.backlog)
                    return plan_row(event.plan, rows, now_ms=self.clock.now_ms())
        raise TransientKafkaError("the plan ended early", reason="WATCH_ENDED")


@dataclass(slots=True)
class PlanRows:
    """What is counted of a plan's rows."""

    actions: dict[str, set[str]] = field(default_factory=dict)
    """By group."""
    topics: Counter[str] = field(default_factory=Counter)
    """Records that are not copied."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Topics of which it is not known, and why."""
    why: dict[str, str] = field(default_factory=dict)

    def take(self, partitions: Any, backlog: Any) -> None:
        for entry in partitions:
            self.actions.setdefault(entry.group, set()).add(value_of(entry, "action"))
        for each in backlog:
            topic = each.partition.topic
            if each.HasField("records_not_copied"):
                self.topics[topic] += each.records_not_copied
                if each.records_not_copied and each.message:
                    self.why[topic] = each.message
            else:
                self.unknown[topic] = each.message


def plan_row(plan: pb2.MovePlan, rows: PlanRows, *, now_ms: int) -> dict[str, Any]:
    """What the page shows of a plan. Pure."""
    late = [
        (topic, count) for topic, count in rows.topics.most_common() if count and topic not in rows.unknown
    ]
    topics: list[dict[str, Any]] = [
        {"topic": topic, "records": None, "why": why} for topic, why in sorted(rows.unknown.items())
    ]
    topics += [{"topic": topic, "records": count, "why": rows.why.get(topic, "")} for topic, count in late]
    groups = rows.actions.values()
    checks = plan_checks(plan_facts(plan, rows.actions, "failover"))
    return {
        "checks": [asdict(check) for check in checks],
        "at_ms": now_ms,
        **as_json(_PLAN, plan),
        "groups": len(rows.actions),
        "ready": sum(bool(actions) and actions <= THERE for actions in groups),
        "active_before": sum("SKIP_ACTIVE_BEFORE" in actions for actions in groups),
        "active_there": sum("SKIP_ACTIVE_THERE" in actions for actions in groups),
        "topics": topics[:MOST_TOPICS],
        "more_topics": max(0, len(topics) - MOST_TOPICS),
    }


_PLAN: Fields[pb2.MovePlan] = table(
    "blockers warnings from=from_cluster to=to_cluster records=records_not_copied at_most=at_most_not_copied",
    "seconds=estimated fenced_topics",
)
