"""Boards and alerts on a real Prometheus, which scrapes real services that copy between real clusters.

Every alert fires here in a scenario of its own. How long each must be so (`for`) is in `test_alerts.py`, on
series that are made up.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import jwt
from deploy.observability.alerts import ALERTS
from deploy.observability.boards import BOARDS

from integration.observability.prometheus_rig import TEST_RPO_SECONDS, WINDOW, Prometheus, prometheus
from integration.observability.prometheus_tools import tool
from integration.observability.watched_rig import (
    BEAT_SECONDS,
    BUSY,
    CHANGED,
    DREAMERS,
    LARGE,
    LATE,
    LOST,
    OWNER_TIMEOUT_SECONDS,
    READERS,
    RECORDS_AT_ONCE,
    SMALL,
    STRIMZI_CLUSTER,
    VISITED,
    A,
    B,
    StartCluster,
    WatchedRig,
    open_estate,
)
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.clock import SystemClock
from twinlog.kafka.ports import Candidate, NewTopic
from twinlog.local.port_lease import PortLease
from twinlog.local.spec import ADDRESS
from twinlog.model import Flow, TopicPartition
from twinlog.policy.names import lease_group
from twinlog.testing.brokers import eventually, make_topics, retry_admin
from twinlog.testing.certificates import Authority
from twinlog.testing.service_process import run_service
from unit.service.test_strimzi_names import BOARD

QUOTA_BYTES_PER_SECOND = 1_000.0
"""Somebody writes more."""
DAY_SECONDS = 86_400
BATCH_BYTES = 100_000
BACKLOG_BYTES = 40 * BATCH_BYTES
OWNERS = f'twinlog_flow_owner_changes_total{{twinlog_service="heartbeat", twinlog_source_cluster="{A}"}}'
Panel = tuple[str, str]
"""Board and title."""

ONLY_IN_TROUBLE: frozenset[Panel] = frozenset(
    {
        ("twinlog-1-glance", "Failures"),
        ("twinlog-2-flows", "Partitions that stand"),
        ("twinlog-3-ends", "What is behind waits for"),
        ("twinlog-3-ends", "Limits"),
        ("twinlog-4-offsets", "Failures"),
        ("twinlog-6-migration", "Topics that hold it up"),
        ("twinlog-6-migration", "Groups that hold it up"),
    }
)
"""Empty while all is well. Each of them is shown by a scenario below."""
NOT_HERE: frozenset[Panel] = frozenset(
    {("twinlog-7-services", "Certificate expires in"), ("twinlog-7-services", "Token expires in")}
)
"""The services of the scenario show neither: they have a test of their own."""
EXPIRE = frozenset({"TwinlogCertificateExpires", "TwinlogTokenExpires"})
"""The alerts of that test."""
ABOUT_RECORDS = frozenset(
    {"TwinlogDataLost", "TwinlogForeignWriter", "TwinlogPartitionFaulted", "TwinlogCopyDiffers"}
)
"""They fire in their scenarios, and not for a moment in others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    trouble: Callable[[WatchedRig, Prometheus], AbstractAsyncContextManager[None]]
    """Makes it, and mends it again."""
    fires: frozenset[str] = frozenset()
    """Alerts that it makes fire."""
    may_fire: frozenset[str] = frozenset()
    """What else is wrong for a moment while it lasts."""
    stays: bool = False
    """The alerts tell of the last hour, or of what this test does not mend."""
    shows: frozenset[Panel] = frozenset()


@asynccontextmanager
async def copier_stopped(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    """Not ended: its sockets stay open, and it answers nobody."""
    process = of.process("source")
    process.suspend()
    try:
        yield
    finally:
        process.resume()


@asynccontextmanager
async def heartbeat_stopped(of: WatchedRig, scraper: Prometheus) -> AsyncIterator[None]:
    """What the others tell is still told."""
    process = of.process("heartbeat")
    process.suspend()
    try:
        await eventually(lambda: _is(scraper, 'absent(twinlog_heartbeat_path{twinlog_state="ALIVE"})'))
        for metric in ("replication_partitions", "checkpoint_groups", "configsync_age_seconds"):
            assert await scraper.query(f"twinlog_{metric}"), metric
        yield
    finally:
        process.resume()


@asynccontextmanager
async def heartbeat_and_copier_stopped(of: WatchedRig, scraper: Prometheus) -> AsyncIterator[None]:
    async with heartbeat_stopped(of, scraper), copier_stopped(of, scraper):
        yield


@asynccontextmanager
async def link_cut(of: WatchedRig, scraper: Prometheus) -> AsyncIterator[None]:
    of.link.cut()
    try:
        late = f"max(twinlog_heartbeat_age_seconds) > {2 * BEAT_SECONDS}"
        await eventually(lambda: _is(scraper, late))
        yield
    finally:
        of.link.mend()
    await eventually(lambda: _is(scraper, 'twinlog_heartbeat_path{twinlog_state="ALIVE"} == 1'))


@asynccontextmanager
async def flow_paused(of: WatchedRig, scraper: Prometheus) -> AsyncIterator[None]:
    await of.pause()
    try:
        await eventually(lambda: _is(scraper, 'twinlog_heartbeat_path{twinlog_state="SILENT"} == 1'))
        yield
    finally:
        await of.resume()


@asynccontextmanager
async def topic_limited_to_nothing(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    await of.limit(BUSY, 1)
    try:
        yield
    finally:
        await of.limit(BUSY, 0)


@asynccontextmanager
async def topic_limited_below_its_backlog(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    """The copy moves all the time, and needs longer than the recovery point allows."""
    await of.limit(LARGE, BACKLOG_BYTES // (4 * TEST_RPO_SECONDS))
    await of.write_batches(LARGE, BACKLOG_BYTES // BATCH_BYTES, BATCH_BYTES)
    try:
        yield
    finally:
        await of.limit(LARGE, 0)


@asynccontextmanager
async def owner_changes_again_and_again(of: WatchedRig, scraper: Prometheus) -> AsyncIterator[None]:
    """Somebody puts the heartbeat service out of its group, leads the group, and leaves it."""
    for _ in range(2):
        rival = of.target.candidate(
            lease_group("heartbeat", Flow(A, B)),
            name=lambda: "rival",
            session_seconds=OWNER_TIMEOUT_SECONDS,
            is_gone=lambda _mark: True,
        )
        owners = await scraper.value(OWNERS)

        async def service_hears_of_the_rival(rival: Candidate = rival, owners: float = owners) -> bool:
            await rival.stand()
            return await scraper.value(OWNERS) > owners

        async def service_is_the_owner_again(owners: float = owners) -> bool:
            return await scraper.value(OWNERS) > owners + 1

        try:
            await eventually(service_hears_of_the_rival)
        finally:
            await rival.withdraw()
        await eventually(service_is_the_owner_again)
    yield


@asynccontextmanager
async def target_refuses_a_topic(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    """Kafka takes no topic whose name is as that of another one but for dots and underscores."""
    other = f"{A}.{LATE}".replace(".", "_")
    for cluster, topic in ((of.target, other), (of.source, LATE)):
        await make_topics(cluster, NewTopic(name=topic, partition_count=1, replication_factor=1))
    try:
        yield
    finally:
        await retry_admin(lambda: of.target.delete_topics([other]))


@asynccontextmanager
async def checkpoint_service_starts_and_cannot_write(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    async with of.nobody_may_write(of.target, f"{A}.checkpoints.internal"):
        await of.commit(READERS, 30)
        of.process("checkpoint").kill()
        yield


@asynccontextmanager
async def offset_syncs_cannot_be_written(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    async with of.nobody_may_write(of.source, f"mm2-offset-syncs.{B}.internal"):
        of.records_at_once = 10 * RECORDS_AT_ONCE
        try:
            yield
        finally:
            of.records_at_once = RECORDS_AT_ONCE


@asynccontextmanager
async def writers_limited(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    await of.limit_writers(QUOTA_BYTES_PER_SECOND)
    try:
        yield
    finally:
        await of.limit_writers(None)


@asynccontextmanager
async def group_behind_the_end(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    await of.commit(DREAMERS, 1_000_000_000)
    yield


@asynccontextmanager
async def copy_changed_again_and_again(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    async def is_changed_back() -> bool:
        return await of.config_of_copy(CHANGED, "retention.ms") == "700000000"

    for days in range(1, 5):
        await eventually(is_changed_back)
        await of.change_copy(CHANGED, "retention.ms", f"{days * 86_400_000}")
    await eventually(is_changed_back)
    yield


@asynccontextmanager
async def somebody_else_writes(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    await of.write(VISITED, b"ours", b"ours")
    await of.copied(VISITED, 2)
    await of.write(f"{A}.{VISITED}", b"stranger", into=of.b)
    await of.write(VISITED, b"ours")
    await of.copied(VISITED, 3)
    yield


@asynccontextmanager
async def records_lost(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    await of.pause(LOST)

    async def is_paused() -> bool:
        return (await of.partition(LOST)).state == pb.PARTITION_STATE_PAUSED

    await eventually(is_paused)
    await of.write(LOST, *(b"gone" for _ in range(40)))
    await retry_admin(lambda: of.source.delete_records({TopicPartition(LOST, 0): 30}))
    await of.resume(LOST)
    await of.copied(LOST, 40)
    yield


@asynccontextmanager
async def record_too_large(of: WatchedRig, _: Prometheus) -> AsyncIterator[None]:
    await of.write(SMALL, b"x" * 1_500_000)
    yield


SCENARIOS: dict[str, Scenario] = {
    "the flow is paused": Scenario(
        trouble=flow_paused,
        may_fire=frozenset({"TwinlogLagOverRpo"}),
        shows=frozenset(
            {
                ("twinlog-3-ends", "What is behind waits for"),
                ("twinlog-6-migration", "Topics that hold it up"),
            }
        ),
    ),
    "a limit is below what has to be copied": Scenario(
        trouble=topic_limited_below_its_backlog,
        fires=frozenset({"TwinlogLagOverRpo"}),
        shows=frozenset({("twinlog-3-ends", "Limits")}),
    ),
    "a limit leaves a topic nothing": Scenario(
        # It is the only topic that anybody writes to: heartbeats alone are copied.
        trouble=topic_limited_to_nothing,
        fires=frozenset({"TwinlogPartitionStalled", "TwinlogNothingCopied"}),
        may_fire=frozenset({"TwinlogLagOverRpo"}),
    ),
    "the copier stands still": Scenario(
        trouble=copier_stopped,
        fires=frozenset({"TwinlogServiceDown", "TwinlogNothingCopied", "TwinlogDelaySilent"}),
    ),
    "the heartbeat service stands still": Scenario(
        trouble=heartbeat_stopped, fires=frozenset({"TwinlogServiceDown"})
    ),
    "the heartbeat service and the copier stand still": Scenario(
        trouble=heartbeat_and_copier_stopped,
        fires=frozenset({"TwinlogServiceDown", "TwinlogNothingCopied"}),
    ),
    "a quota of the target holds the copier up": Scenario(
        trouble=writers_limited,
        fires=frozenset({"TwinlogTargetThrottles"}),
        may_fire=frozenset(
            {
                "TwinlogDelaySilent",
                "TwinlogNothingCopied",
                "TwinlogPartitionStalled",
                "TwinlogOffsetSyncsStale",
                "TwinlogCheckpointsStalled",
                "TwinlogLagOverRpo",
            }
        ),
    ),
    "the owner of a flow changes again and again": Scenario(
        trouble=owner_changes_again_and_again, fires=frozenset({"TwinlogOwnerFlapping"}), stays=True
    ),
    "the way to the target is cut": Scenario(
        trouble=link_cut,
        fires=frozenset({"TwinlogClusterUnreachable", "TwinlogNothingCopied"}),
        may_fire=frozenset(
            {
                "TwinlogDelaySilent",
                "TwinlogLagOverRpo",
                "TwinlogServiceNotReady",
                "TwinlogPartitionStalled",
                "TwinlogCheckpointsStalled",
                "TwinlogOffsetSyncsStale",
                "TwinlogOffsetsNotExact",
            }
        ),
    ),
    "the checkpoint service starts and cannot write": Scenario(
        trouble=checkpoint_service_starts_and_cannot_write,
        fires=frozenset({"TwinlogCheckpointsStalled", "TwinlogServiceNotReady"}),
        may_fire=frozenset({"TwinlogServiceDown"}),
        shows=frozenset({("twinlog-4-offsets", "Failures")}),
    ),
    "offset syncs cannot be written": Scenario(
        trouble=offset_syncs_cannot_be_written,
        fires=frozenset({"TwinlogOffsetSyncsStale"}),
        may_fire=frozenset({"TwinlogOffsetsNotExact"}),
    ),
    "the target refuses a topic": Scenario(
        trouble=target_refuses_a_topic, fires=frozenset({"TwinlogTargetOutOfStep"})
    ),
    "a group stands behind the end of its log": Scenario(
        trouble=group_behind_the_end,
        fires=frozenset({"TwinlogOffsetsNotExact"}),
        stays=True,
        shows=frozenset({("twinlog-6-migration", "Groups that hold it up")}),
    ),
    "somebody changes the target back": Scenario(
        trouble=copy_changed_again_and_again, fires=frozenset({"TwinlogDriftFightsBack"}), stays=True
    ),
    "somebody else writes into a copy": Scenario(
        trouble=somebody_else_writes,
        fires=frozenset({"TwinlogForeignWriter", "TwinlogCopyDiffers"}),
        stays=True,
    ),
    "records are deleted before they are copied": Scenario(
        trouble=records_lost, fires=frozenset({"TwinlogDataLost"}), stays=True
    ),
    "the target refuses a record": Scenario(
        trouble=record_too_large,
        fires=frozenset({"TwinlogPartitionFaulted"}),
        may_fire=frozenset({"TwinlogLagOverRpo"}),
        stays=True,
        shows=frozenset({("twinlog-1-glance", "Failures"), ("twinlog-2-flows", "Partitions that stand")}),
    ),
}


async def test_boards_show_and_alerts_tell_what_happens(start_cluster: StartCluster, tmp_path: Path) -> None:
    tool("prometheus")
    async with open_estate(start_cluster, tmp_path) as of, asyncio.TaskGroup() as tasks:
        stop = asyncio.Event()
        tasks.create_task(of.write_on(stop), name="somebody writes")
        try:
            async with prometheus(tmp_path, list(of.metrics.values())) as scraper:
                await of.commit(READERS, 15)
                await scraper.answers(_queries(lambda panel: panel not in ONLY_IN_TROUBLE | NOT_HERE))
                await scraper.answers(_strimzi_queries())
                for expression in _queries(lambda panel: panel in NOT_HERE).values():
                    await scraper.query(expression)
                await scraper.firing_is(frozenset(), "all is well")
                lasting: frozenset[str] = frozenset()
                for name, scenario in SCENARIOS.items():
                    lasting = await _play(name, scenario, of, scraper, lasting)
        finally:
            stop.set()


async def test_credentials_near_their_end_are_shown_and_told(tmp_path: Path) -> None:
    """A service alone, whose clusters are away."""
    tool("prometheus")
    authority = Authority()
    files = authority.files(tmp_path, "heartbeat", ADDRESS, days=7)
    signed, login = authority.sign("client", days=7), tmp_path / "login.pem"
    login.write_bytes(signed.key + signed.chain)
    token = tmp_path / "token"
    now = SystemClock().now_ms() // 1000
    token.write_text(jwt.encode({"iat": now - 91 * DAY_SECONDS, "exp": now + 7 * DAY_SECONDS}, "x" * 32))
    ports = PortLease(1)
    address = f"{ADDRESS}:{ports.ports[0]}"
    properties = f"""
clusters = {A}, {B}
{A}.bootstrap.servers = {ADDRESS}:1
{B}.bootstrap.servers = {ADDRESS}:1
{A}.security.protocol = SSL
{A}.ssl.keystore.type = PEM
{A}.ssl.keystore.location = {login}
{A}->{B}.enabled = true
twinlog.tls.certificate.file = {files.certificate}
twinlog.tls.key.file = {files.key}
twinlog.tls.ca.file = {files.ca}
twinlog.client.token.file = {token}
twinlog.heartbeat.metrics.listen = {address}
"""
    async with (
        run_service("heartbeat", tmp_path / "heartbeat", properties),
        prometheus(tmp_path, [address]) as scraper,
    ):
        await scraper.answers(_queries(lambda panel: panel in NOT_HERE))
        others = frozenset(alert.name for alert in ALERTS)
        await scraper.firing_is(EXPIRE, "they end soon", besides=others)
    ports.release()


async def _play(
    name: str, scenario: Scenario, of: WatchedRig, scraper: Prometheus, lasting: frozenset[str]
) -> frozenset[str]:
    """Returns the alerts that fire from now on."""
    async with scenario.trouble(of, scraper):
        fires = scenario.fires | lasting
        await scraper.firing_is(fires, name, besides=scenario.may_fire)
        untrue = (await scraper.ever_fired() & ABOUT_RECORDS) - fires
        assert not untrue, f"{name}: {sorted(untrue)} fired for a moment"
        await scraper.answers(_queries(lambda panel: panel in scenario.shows))
    if scenario.stays:
        return fires
    await scraper.firing_is(lasting, f"after: {name}")
    return lasting


async def _is(scraper: Prometheus, expression: str) -> bool:
    return bool(await scraper.query(expression))


def _queries(wanted: Callable[[Panel], bool]) -> dict[str, str]:
    """The queries of the wanted panels, filled in as Grafana does with one flow chosen."""
    return {
        f"{board.uid}: {panel.title} {number}": re.sub(
            r"\[[0-9]+m\]",
            f"[{WINDOW}]",
            query.expression.replace("$__rate_interval", WINDOW).replace("$source", A).replace("$target", B),
        )
        for board in BOARDS
        for panel in board.panels
        for number, query in enumerate(panel.queries)
        if wanted((board.uid, panel.title))
    }


def _strimzi_queries() -> dict[str, str]:
    """As the board of Strimzi asks."""
    chosen = f'strimzi_io_kind=~"KafkaMirrorMaker2", strimzi_io_cluster="{STRIMZI_CLUSTER}"'
    lag = "kafka_consumer_fetch_manager_records_lag"
    return {
        **{name: f"sum by ({', '.join(labels)}) ({name}{{{chosen}}})" for name, labels in BOARD.items()},
        "consumer lag": f"topk(20, sum({lag}{{{chosen}, clientid=~'.*replication-consumer\"'}}) by (topic))",
    }


def test_every_alert_and_every_panel_that_is_empty_otherwise_has_a_scenario() -> None:
    panels = {(board.uid, panel.title) for board in BOARDS for panel in board.panels}
    assert panels >= ONLY_IN_TROUBLE | NOT_HERE
    assert frozenset().union(*(scenario.shows for scenario in SCENARIOS.values())) == ONLY_IN_TROUBLE
    alerts = {alert.name for alert in ALERTS}
    fired = frozenset().union(*(scenario.fires for scenario in SCENARIOS.values()))
    assert fired == alerts - EXPIRE
    for scenario in SCENARIOS.values():
        assert scenario.may_fire <= alerts
