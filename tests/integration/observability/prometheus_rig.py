"""A real Prometheus, with the rules that are shipped."""

import asyncio
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from deploy.observability.files import rules

from integration.observability.prometheus_tools import tool
from twinlog.local.port_lease import PortLease
from twinlog.local.processes.process import GuardedProcess
from twinlog.testing.brokers import eventually
from unit.deploy.alerts import RPO_SECONDS

WINDOW = "15s"
"""Instead of the minutes over which rules and boards look back."""
OTHER_WINDOWS = {"TwinlogOwnerFlapping": "60m"}
"""What takes longer than WINDOW to happen on a busy machine: such an alert fires until the test ends."""
TEST_RPO_SECONDS = 10
"""Instead of the shipped recovery point objective."""
_ANSWER_SECONDS = 30
_STOP_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    port: int

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that answer it now. AssertionError while Prometheus does not answer, ValueError for an
        expression that is none."""
        words = urllib.parse.urlencode({"query": expression})
        url = f"http://127.0.0.1:{self.port}/api/v1/query?{words}"

        def ask() -> Any:
            try:
                with urllib.request.urlopen(url, timeout=_ANSWER_SECONDS) as answer:
                    return json.loads(answer.read())
            except urllib.error.HTTPError as error:
                if error.code >= 500:
                    raise AssertionError(f"Prometheus is not ready: {error}") from error
                raise ValueError(f"{expression}: {error.read().decode()}") from error
            except OSError as error:
                raise AssertionError(f"Prometheus does not answer: {error}") from error

        answer = await asyncio.to_thread(ask)
        series: list[dict[str, Any]] = answer["data"]["result"]
        return series

    async def value(self, expression: str) -> float:
        """Value of the one series that answers. AssertionError where there is none, or more."""
        series = await self.query(expression)
        assert len(series) == 1, (expression, series)
        return float(series[0]["value"][1])

    async def firing(self) -> frozenset[str]:
        """Names of the alerts."""
        found = await self.query('ALERTS{alertstate="firing"}')
        return frozenset(series["metric"]["alertname"] for series in found)

    async def ever_fired(self) -> frozenset[str]:
        """Names of the alerts that fire, or have fired since Prometheus runs."""
        found = await self.query('max_over_time(ALERTS{alertstate="firing"}[1h])')
        return frozenset(series["metric"]["alertname"] for series in found)

    async def firing_is(
        self, alerts: frozenset[str], when: str, *, besides: frozenset[str] = frozenset()
    ) -> None:
        """Wait until these alerts fire, and no others than those of `besides`."""

        async def so() -> bool:
            firing = await self.firing()
            missing, more = alerts - firing, firing - alerts - besides
            assert not missing | more, f"{when}: {sorted(missing)} do not fire, {sorted(more)} do"
            return True

        await eventually(so)

    async def answers(self, queries: Mapping[str, str]) -> None:
        """Wait until each of them has had an answer. Raises AssertionError with those that have not."""
        waiting = dict(queries)

        async def all_have() -> bool:
            for name, expression in list(waiting.items()):
                if await self.query(expression):
                    del waiting[name]
            assert not waiting, waiting
            return True

        await eventually(all_have)


def _hastened() -> str:
    """The shipped rules for tests that cannot wait: no `for`, another recovery point objective, and a short
    window for each range of minutes. Ranges of hours stay."""
    document: dict[str, Any] = yaml.safe_load(rules())
    for rule in document["groups"][0]["rules"]:
        window = OTHER_WINDOWS.get(rule["alert"], WINDOW)
        expression = rule["expr"].replace(f"> {RPO_SECONDS}", f"> {TEST_RPO_SECONDS}")
        rule |= {"for": "0s", "expr": re.sub(r"\[[0-9]+m\]", f"[{window}]", expression)}
    return str(yaml.safe_dump(document))


@asynccontextmanager
async def prometheus(directory: Path, targets: Sequence[str]) -> AsyncIterator[Prometheus]:
    """It scrapes every second, and keeps all in `directory`. The shipped alerts fire at once."""
    program = tool("prometheus")
    (directory / "alerts.yaml").write_text(_hastened())
    (directory / "prometheus.yaml").write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
                "rule_files": ["alerts.yaml"],
                "scrape_configs": [
                    {"job_name": "twinlog", "static_configs": [{"targets": list(targets)}]},
                ],
            }
        )
    )
    lease = PortLease(1)
    (port,) = lease.ports
    process = GuardedProcess(
        [
            program,
            f"--config.file={directory / 'prometheus.yaml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        output=directory / "prometheus.log",
    )
    try:
        yield Prometheus(port=port)
    finally:
        await asyncio.to_thread(process.stop, _STOP_SECONDS)
        lease.release()


async def holds(scraper: Prometheus, expression: str) -> bool:
    return bool(await scraper.query(expression))
