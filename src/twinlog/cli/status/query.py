"""Asks all services at once what `twinlog status` shows. A service that does not answer is a row, not an
error.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from twinlog.api.common.v1 import owners_service_pb2 as owners_pb2
from twinlog.api.common.v1 import types_pb2
from twinlog.api.common.v1.owners_service_pb2_grpc import OwnersServiceStub
from twinlog.api.configsync.v1 import configsync_service_pb2 as configsync
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as heartbeat
from twinlog.cli.common.call import Services, told_by
from twinlog.cli.common.fields import Field, Fields, as_json, table
from twinlog.cli.configsync.rules import is_of_operator
from twinlog.cli.configsync.topics import CYCLE_HELP, cycle_words
from twinlog.cli.status import rows as kinds
from twinlog.cli.status.details import ask_checkpoint, ask_source
from twinlog.cli.status.rows import FlowRow, Owner, ServiceRow, Status, asked, shown_stamp
from twinlog.errors import NotFoundError, TwinlogError
from twinlog.policy.replication import HEARTBEATS_TOPIC
from twinlog.printable import listed
from twinlog.service.answering_process import PROCESS_METADATA_KEY, AnsweringProcess
from twinlog.service.interceptors import SECURITY_METADATA_KEY, VERSION_METADATA_KEY

# What configsync adds to `twinlog status`: topics, those that wait, rules that are not the file's.

SYNC_MODE = "twinlog.sync.mode"


async def ask_configsync(at: Services, status: Status) -> None:
    answer = await at.configsync.ListFlows(configsync.ListFlowsRequest())
    copied = [flow.flow for flow in answer.flows]
    for flow in answer.flows:
        row = status.flow(flow.flow)
        row.topics = dict(flow.topics_by_state)
        if flow.reason != kinds.STANDS_BY:  # On standby it knows as much as the owner.
            row.add_note("configsync", flow.reason, flow.message)
        status.add_clusters("configsync", flow.clusters)
        for cluster, words in cycle_words(flow.cycles).items():
            # Where a flow comes from there, such topics are its copies.
            if types_pb2.Flow(source=cluster, target=flow.flow.source) not in copied:
                row.hold(kinds.CYCLE, words, CYCLE_HELP)
    async with asyncio.TaskGroup() as group:
        for flow in answer.flows:
            group.create_task(_rules(at, flow.flow, status), name="rules")
            if flow.topics_by_state[kinds.WAITING]:
                group.create_task(_waiting(at, flow.flow, status), name="waiting topics")


async def _rules(at: Services, flow: types_pb2.Flow, status: Status) -> None:
    """Rules that are not the file's, and whether changes wait for somebody to apply them."""
    row = status.flow(flow)
    ask = at.configsync.GetRules(configsync.GetRulesRequest(flow=flow))
    answer = await asked(ask, [row], "configsync", "rules are not known")
    if answer is None:
        return
    rules = answer.rules
    updated = shown_stamp(rules.updated) if rules.HasField("updated") else None
    for rule in rules.rules:
        if is_of_operator(rule):
            file_value = rule.file_value or "nothing"
            told = f"{rule.key} = {rule.value}; the file says {file_value}"
            if not rule.changed:
                told = (
                    f"{rule.key} = {rule.put_aside} is put aside: the file has changed, and says {file_value}"
                )
            since = shown_stamp(rule.changed_at) if rule.HasField("changed_at") else updated
            row.hold(kinds.RULE, told, "twinlog rules diff {flow}", by=rule.changed_by or None, since=since)
        if rule.key == SYNC_MODE and rule.value == "manual":
            told = "topics, configs and ACLs change by `twinlog apply` only"
            row.hold(kinds.MANUAL, told, "twinlog plan {flow}")


async def _waiting(at: Services, flow: types_pb2.Flow, status: Status) -> None:
    """Topics that are selected and not copied, by reason."""
    row = status.flow(flow)
    ask = at.configsync.ListTopics(configsync.ListTopicsRequest(flow=flow))
    answer = await asked(ask, [row], "configsync", "topics are not known")
    if answer is None:
        return
    found: dict[tuple[str, str], list[configsync.ReplicatedTopic]] = {}
    for topic in answer.topics:
        if topic.state == configsync.TOPIC_STATE_WAITING:
            about = row.heartbeats if topic.source_topic == HEARTBEATS_TOPIC else row.flow
            found.setdefault((topic.reason, about), []).append(topic)
    for (reason, about), topics in found.items():
        names = [topic.source_topic for topic in topics]
        told = f"selected but not copied: {listed(names, kinds.NAMED_TOPICS)}: {reason} {topics[0].message}"
        row.hold(kinds.WAITING, told.rstrip(), "twinlog topics {flow} --waiting", about=about)


Open = Callable[[str, str], grpc.aio.Channel]


async def query_status(endpoints: Mapping[str, str], open_to: Open, *, timeout_seconds: float) -> Status:
    """Ask health and details of every service at the same time. Each answer may take `timeout_seconds`.
    `open_to` opens a channel to a service by its name and endpoint, and may raise ConfigError."""
    status = Status(
        services=[ServiceRow(name=name, endpoint=endpoint) for name, endpoint in endpoints.items()]
    )
    owners: list[Owner] = []
    async with asyncio.TaskGroup() as group:
        for row in status.services:
            group.create_task(_ask(row, open_to, status, owners, timeout_seconds), name=row.name)
    for flow in status.flows.values():
        # Others are not copied: only their heartbeats are written.
        flow.owners = [owner for owner in owners if owner.flow == flow.flow]
        flow.in_force.sort(key=lambda each: (each.kind, each.about, each.message))  # As they came, else.
        explain_silence(flow)
    return status


def explain_silence(row: FlowRow) -> None:
    """Heartbeats that are paused, alone or with their flow, or whose topic waits, do not arrive: nothing else
    is wrong."""
    if (held := row.holds_heartbeats) is not None:
        told = f"heartbeats are not copied: their topic waits (`twinlog explain topic {HEARTBEATS_TOPIC}`)"
        if held.kind == kinds.PAUSE:
            told = f"heartbeats are not copied while {held.about} is paused: `{held.command}`"
        for note in row.notes:
            if note.reason == kinds.HEARTBEAT_MISSING:
                note.message = told


async def _ask(
    row: ServiceRow, open_to: Open, status: Status, owners: list[Owner], timeout_seconds: float
) -> None:
    silent: dict[str, TwinlogError] = {}
    async with Services(
        open_to=lambda name: open_to(name, row.endpoint), seconds=timeout_seconds, silent=silent
    ) as at:
        health = health_pb2_grpc.HealthStub(at.channel(row.name))
        try:
            with told_by(row.name):
                call = health.Check(health_pb2.HealthCheckRequest(service=""), timeout=timeout_seconds)
                answer = await call
            metadata = dict(await call.initial_metadata() or ())
            row.version = str(metadata.get(VERSION_METADATA_KEY, ""))
            row.security = str(metadata.get(SECURITY_METADATA_KEY, ""))
            if process := AnsweringProcess.of_metadata(str(metadata.get(PROCESS_METADATA_KEY, ""))):
                row.host, row.pid, row.config = process.host, process.pid, process.config
            row.health = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
            if row.health == kinds.SERVING:
                row.ready = await _is_ready(at, row.name)
                await _DETAILS[row.name](at, status)
                owners += await _owners(row.name, at)
        except TwinlogError as error:
            row.reason, row.message = error.reason, str(error)
        for flow in silent:
            for note in status.flows[flow].notes:
                if (note.service, note.reason) == (row.name, kinds.STANDS_BY):
                    note.message = f"the owner does not answer, and others know less: {note.message}"


async def _owners(service: str, at: Services) -> list[Owner]:
    """A service of an earlier release does not tell."""
    call = at.asked(OwnersServiceStub, service).ListOwners(owners_pb2.ListOwnersRequest())
    answer = await asked(call, [], service, "")
    owners = answer.owners if answer is not None else ()
    return [Owner(service=service, **as_json(_OWNER, each)) for each in owners]


_OWNER: Fields[owners_pb2.FlowOwner] = table(
    "flow process why moves_to", Field("processes", lambda each: len(each.able))
)
_DELAY: Fields[heartbeat.FlowDelay] = table(
    "path=state delay_seconds=last_delay delay_basis=basis heartbeat_age_seconds=age"
)


async def _is_ready(at: Services, service: str) -> bool | None:
    """None of a service that has no such health."""
    request = health_pb2.HealthCheckRequest(service="readiness")
    try:
        answer = await at.asked(health_pb2_grpc.HealthStub, service).Check(request)
    except NotFoundError:
        return None
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def _heartbeat(at: Services, status: Status) -> None:
    topology = await at.heartbeat.GetTopology(heartbeat.GetTopologyRequest())
    status.add_clusters("heartbeat", topology.clusters)
    answer = await at.heartbeat.ListDelays(heartbeat.ListDelaysRequest())
    for delay in answer.delays:
        row = status.flow(delay.flow)
        for name, value in as_json(_DELAY, delay).items():
            setattr(row, name, value)
        row.add_note("heartbeat", delay.reason, delay.message)


_DETAILS: dict[str, Callable[[Services, Status], Awaitable[None]]] = {
    "source": ask_source,
    "checkpoint": ask_checkpoint,
    "heartbeat": _heartbeat,
    "configsync": ask_configsync,
}
