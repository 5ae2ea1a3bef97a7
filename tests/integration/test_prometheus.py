"""Boards and alerts on a real Prometheus, which scrapes real services that copy between real clusters.

What takes too long to happen here (owners that flap, copies that lag for minutes) is in
`unit/deploy/test_alerts.py`, on series that are made up.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.observability.alerts import ALERTS
from deploy.observability.boards import BOARDS

from integration.prometheus_rig import WINDOW, Prometheus, prometheus
from integration.prometheus_tools import tool
from integration.watched_estate import (
    BEAT_SECONDS,
    CHANGED,
    DREAMERS,
    LOST,
    READERS,
    SMALL,
    STRIMZI_CLUSTER,
    VISITED,
    A,
    B,
    Estate,
    StartCluster,
    open_estate,
)
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.local.port_lease import PortLease
from twinlog.local.spec import ADDRESS
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually, retry_admin
from twinlog.testing.certificates import Authority
from twinlog.testing.service_process import CALL_SECONDS, run_service
from unit.service.test_strimzi_names import BOARD

QUOTA_BYTES_PER_SECOND = 1_000.0
"""Somebody writes more."""
Panel = tuple[str, str]
"""Board and title."""

ONLY_IN_TROUBLE: frozenset[Panel] = frozenset(
    {
        ("twinlog-1-glance", "Failures"),
        ("twinlog-2-flows", "Partitions that stand"),
        ("twinlog-3-ends", "What is behind waits for"),
        ("twinlog-3-ends", "Limits"),
        ("twinlog-6-migration", "Topics that hold it up"),
        ("twinlog-6-migration", "Groups that hold it up"),
    }
)
"""Empty while all is well. Each of them is shown by a scenario below."""
CERTIFICATE: Panel = ("twinlog-7-services", "Certificate expires in")
NOT_HERE: frozenset[Panel] = frozenset({("twinlog-4-offsets", "Failures"), CERTIFICATE})
"""No pass of the checkpoint service fails here for good, and the services of the estate have no TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    trouble: Callable[[Estate, Prometheus], AbstractAsyncContextManager[None]]
    """Makes it, and mends it again."""
    fires: frozenset[str] = frozenset()
    """Alerts that it makes fire."""
    may_fire: frozenset[str] = frozenset()
    """What else is wrong for a moment while it lasts."""
    stays: bool = False
    """The alerts tell of the last hour, or of what this test does not mend."""
    shows: frozenset[Panel] = frozenset()


@asynccontextmanager
async def copier_stopped(of: Estate, _: Prometheus) -> AsyncIterator[None]:
    """Not ended: its sockets stay open, and it answers nobody."""
    process = of.process("source")
    process.suspend()
    try:
        yield
    finally:
        process.resume()


@asynccontextmanager
async def heartbeat_stopped(of: Estate, scraper: Prometheus) -> AsyncIterator[None]:
    """What the others tell goes on being told."""
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
async def heartbeat_and_copier_stopped(of: Estate, scraper: Prometheus) -> AsyncIterator[None]:
    async with heartbeat_stopped(of, scraper), copier_stopped(of, scraper):
        yield


@asynccontextmanager
async def link_cut(of: Estate, scraper: Prometheus) -> AsyncIterator[None]:
    of.link.cut()
    try:
        late = f"max(twinlog_heartbeat_age_seconds) > {2 * BEAT_SECONDS}"
        await eventually(lambda: _is(scraper, late))
        yield
    finally:
        of.link.mend()
    await eventually(lambda: _is(scraper, 'twinlog_heartbeat_path{twinlog_state="ALIVE"} == 1'))


@asynccontextmanager
async def flow_paused(of: Estate, scraper: Prometheus) -> AsyncIterator[None]:
    await of.pause()
    try:
        await eventually(lambda: _is(scraper, 'twinlog_heartbeat_path{twinlog_state="SILENT"} == 1'))
        yield
    finally:
        await of.resume()


@asynccontextmanager
async def flow_limited(of: Estate, _: Prometheus) -> AsyncIterator[None]:
    request = pb.SetThrottleRequest(scope=of.scope(), bytes_per_second=100_000_000, by="test")
    await of.stub.SetThrottle(request, timeout=CALL_SECONDS)
    yield


@asynccontextmanager
async def writers_limited(of: Estate, _: Prometheus) -> AsyncIterator[None]:
    await of.limit_writers(QUOTA_BYTES_PER_SECOND)
    try:
        yield
    finally:
        await of.limit_writers(None)


@asynccontextmanager
async def group_behind_the_end(of: Estate, _: Prometheus) -> AsyncIterator[None]:
    await of.commit(DREAMERS, 1_000_000_000)
    yield


@asynccontextmanager
async def copy_changed_again_and_again(of: Estate, _: Prometheus) -> AsyncIterator[None]:
    async def is_changed_back() -> bool:
        return await of.config_of_copy(CHANGED, "retention.ms") == "700000000"

    for days in range(1, 5):
        await eventually(is_changed_back)
        await of.change_copy(CHANGED, "retention.ms", f"{days * 86_400_000}")
    await eventually(is_changed_back)
    yield


@asynccontextmanager
async def somebody_else_writes(of: Estate, _: Prometheus) -> AsyncIterator[None]:
    await of.write(VISITED, b"ours", b"ours")
    await of.copied(VISITED, 2)
    await of.write(f"{A}.{VISITED}", b"stranger", into=of.b)
    await of.write(VISITED, b"ours")
    await of.copied(VISITED, 3)
    yield


@asynccontextmanager
async def records_lost(of: Estate, _: Prometheus) -> AsyncIterator[None]:
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
async def record_too_large(of: Estate, _: Prometheus) -> AsyncIterator[None]:
    await of.write(SMALL, b"x" * 1_500_000)
    yield


SCENARIOS: dict[str, Scenario] = {
    "the flow is paused": Scenario(
        trouble=flow_paused,
        shows=frozenset(
            {
                ("twinlog-3-ends", "What is behind waits for"),
                ("twinlog-6-migration", "Topics that hold it up"),
            }
        ),
    ),
    "the flow is limited": Scenario(trouble=flow_limited, shows=frozenset({("twinlog-3-ends", "Limits")})),
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
            }
        ),
    ),
    "the way to the target is cut": Scenario(
        trouble=link_cut,
        fires=frozenset({"TwinlogClusterUnreachable", "TwinlogNothingCopied"}),
        may_fire=frozenset(
            {
                "TwinlogDelaySilent",
                "TwinlogServiceNotReady",
                "TwinlogPartitionStalled",
                "TwinlogCheckpointsStalled",
                "TwinlogOffsetSyncsStale",
                "TwinlogOffsetsNotExact",
                "TwinlogOwnerFlapping",
            }
        ),
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


async def test_a_certificate_near_its_end_is_shown_and_told(tmp_path: Path) -> None:
    """A service alone, whose clusters are away."""
    tool("prometheus")
    authority = Authority()
    files = authority.files(tmp_path, "heartbeat", ADDRESS, days=7)
    signed, login = authority.sign("client", days=7), tmp_path / "login.pem"
    login.write_bytes(signed.key + signed.chain)
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
twinlog.heartbeat.metrics.listen = {address}
"""
    async with (
        run_service("heartbeat", tmp_path / "heartbeat", properties),
        prometheus(tmp_path, [address]) as scraper,
    ):
        await scraper.answers(_queries(lambda panel: panel == CERTIFICATE))
        others = frozenset(alert.name for alert in ALERTS)
        await scraper.firing_is(frozenset({"TwinlogCertificateExpires"}), "it ends soon", besides=others)
    ports.release()


async def _play(
    name: str, scenario: Scenario, of: Estate, scraper: Prometheus, lasting: frozenset[str]
) -> frozenset[str]:
    """Returns the alerts that fire from now on."""
    async with scenario.trouble(of, scraper):
        fires = scenario.fires | lasting
        await scraper.firing_is(fires, name, besides=scenario.may_fire)
        await scraper.answers(_queries(lambda panel: panel in scenario.shows))
    if scenario.stays:
        return fires
    await scraper.firing_is(lasting, f"after: {name}")
    return lasting


async def _is(scraper: Prometheus, expression: str) -> bool:
    return bool(await scraper.query(expression))


def _queries(wanted: Callable[[Panel], bool]) -> dict[str, str]:
    """Of panels, filled in as Grafana does with one flow chosen."""
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


def test_every_panel_and_alert_of_the_scenarios_exists_and_every_empty_panel_has_one() -> None:
    panels = {(board.uid, panel.title) for board in BOARDS for panel in board.panels}
    assert panels >= ONLY_IN_TROUBLE | NOT_HERE
    assert frozenset().union(*(scenario.shows for scenario in SCENARIOS.values())) == ONLY_IN_TROUBLE
    alerts = {alert.name for alert in ALERTS}
    for scenario in SCENARIOS.values():
        assert scenario.fires | scenario.may_fire <= alerts
