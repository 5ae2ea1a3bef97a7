"""Boards and alerts on a real Prometheus, which scrapes real services that copy between real clusters.

Every alert fires here in a scenario of its own. How long each must be so (`for`) is in `test_alerts.py`, on
series that are made up.
"""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import jwt
from deploy.observability.grafana import BOARDS

from integration.observability.prometheus_rig import WINDOW, Prometheus, prometheus
from integration.observability.prometheus_tools import tool
from integration.observability.scenarios import (
    ABOUT_RECORDS,
    EXPIRE,
    NOT_HERE,
    ONLY_IN_TROUBLE,
    SCENARIOS,
    Panel,
    Scenario,
)
from integration.observability.watched_rig import (
    READERS,
    A,
    B,
    StartCluster,
    WatchedRig,
    open_estate,
)
from twinlog.clock import SystemClock
from twinlog.local.certificates import Authority
from twinlog.local.port_lease import PortLease
from twinlog.local.spec import ADDRESS
from twinlog.testing.service_process import run_service
from unit.deploy.alerts import ALERTS

DAY_SECONDS = 86_400


async def test_boards_show_and_alerts_tell_what_happens(start_cluster: StartCluster, tmp_path: Path) -> None:
    tool("prometheus")
    async with open_estate(start_cluster, tmp_path) as of, asyncio.TaskGroup() as tasks:
        stop = asyncio.Event()
        tasks.create_task(of.write_on(stop), name="somebody writes")
        try:
            async with prometheus(tmp_path, list(of.metrics.values())) as scraper:
                await of.commit(READERS, 15)
                await scraper.answers(_queries(lambda panel: panel not in ONLY_IN_TROUBLE | NOT_HERE))
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
    files = authority.files(tmp_path, "heartbeat", ADDRESS, days=0.9)
    signed, login = authority.sign("client", days=0.9), tmp_path / "login.pem"
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


def test_every_alert_and_every_panel_that_is_empty_otherwise_has_a_scenario() -> None:
    panels = {(board.uid, panel.title) for board in BOARDS for panel in board.panels}
    assert panels >= ONLY_IN_TROUBLE | NOT_HERE
    assert frozenset().union(*(scenario.shows for scenario in SCENARIOS.values())) == ONLY_IN_TROUBLE
    alerts = {alert.name for alert in ALERTS}
    fired = frozenset().union(*(scenario.fires for scenario in SCENARIOS.values()))
    assert fired == alerts - EXPIRE
    for scenario in SCENARIOS.values():
        assert scenario.may_fire <= alerts
