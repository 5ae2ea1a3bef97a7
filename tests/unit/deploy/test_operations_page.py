"""docs/operations.md and docs/alerts.md: what somebody reads whom an alert has woken."""

import re
import shlex
from typing import Any

import pytest
import typer
from deploy.observability.files import page, rules
from deploy.observability.grafana import BOARDS

from twinlog.cli import app
from twinlog.cli.ui.command import DEFAULT_LISTEN
from twinlog.telemetry.metrics import METRICS
from twinlog.telemetry.metrics_page import prometheus_name
from unit.cases import about
from unit.deploy.alerts import ALERTS
from unit.deploy.wheels import PROJECT

PAGE = (PROJECT / "docs/operations.md").read_text()
ALERTS_PAGE = (PROJECT / "docs/alerts.md").read_text()
PAGES = "".join(
    [
        PAGE,
        ALERTS_PAGE,
        *((PROJECT / f"docs/{name}.md").read_text() for name in ("upgrade", "backup", "capacity")),
    ]
)
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", ALERTS_PAGE, re.MULTILINE | re.DOTALL))


def test_every_alert_has_a_section_that_says_what_it_means_and_what_to_do() -> None:
    for name in [alert.name for alert in ALERTS]:
        with about(name):
            asked = [re.escape(f"- **{word}") for word in ("Means.**", "Look at.**", "Do.**", "Do not**")]
            assert re.search(".*".join(asked), SECTIONS[name], re.DOTALL)


def test_no_section_is_of_an_alert_that_is_gone() -> None:
    assert SECTIONS.keys() == {alert.name for alert in ALERTS}


def test_the_table_of_alerts_says_how_urgent_each_is_and_when_it_fires() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\(alerts.md#(\w+)\) \| (\w+) \| (\w+) \|", PAGE, re.MULTILINE)
    assert rows == [(each.name, each.name.lower(), str(each.severity), each.held) for each in ALERTS]


def test_the_table_of_boards_lists_each_with_what_it_shows() -> None:
    section = PAGE.partition("## Dashboards")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d: .+) \| (.+) \|$", section, re.MULTILINE)
    assert rows == [(board.title.removeprefix("Twinlog "), board.meaning) for board in BOARDS]


def test_alerts_link_to_the_runbook_wherever_it_is() -> None:
    place = "https://wiki.example/alerts"
    told = re.findall(r"runbook_url: (\S+)", rules(runbook=place))
    assert told == [f"{place}#{each.name.lower()}" for each in ALERTS]


def test_the_live_page_has_the_runbook_to_which_alerts_link_by_default() -> None:
    base = re.findall(r"runbook_url: http://(.+)/(.+)#", rules())[0]
    assert base == (DEFAULT_LISTEN, "alerts.html")
    served = (PROJECT / "src/twinlog/cli/ui/page" / base[1]).read_text()
    assert served == page((PROJECT / "docs/alerts.md").read_text()), (
        ".venv/bin/python -m deploy.observability"
    )
    assert re.findall(r'<h2 id="(.+?)">', served) == [each.name.lower() for each in ALERTS]
    assert re.search(r"\]\(|\*|`", served) is None


_TEMPLATE = re.compile(r"\{\{ \$labels\.(\w+) \}\}")
FIRST = {_TEMPLATE.sub("source", alert.first) for alert in ALERTS}
COMMANDS = sorted(
    FIRST
    | set(re.findall(r"`(twinlog [^`]+)`", PAGES))
    | set(re.findall(r"^(?:docker compose run --rm )?(twinlog [a-z][^#|\n]*)", PAGES, re.MULTILINE))
)


def test_every_command_of_the_page_exists_with_its_options() -> None:
    for line in COMMANDS:
        with about(line):
            words = shlex.split(line)
            command: Any = typer.main.get_command(app)
            rest = words[1:]
            while rest and hasattr(command, "get_command"):
                command, rest = command.get_command(None, rest[0]), rest[1:]
                assert command is not None, line
            options = {name for parameter in command.params for name in parameter.opts} if rest else set()
            assert {word for word in rest if word.startswith("-")} <= options


def test_the_first_command_of_an_alert_names_only_what_its_series_tell() -> None:
    for alert in ALERTS:
        with about(alert.name):
            assert alert.first.startswith("twinlog ")
            assert {f"$labels.{label}" for label in _TEMPLATE.findall(alert.first)} <= {
                f"$labels.{label}" for label in re.findall(r"\w+", alert.expression)
            }


def test_every_key_and_series_of_the_page_exists() -> None:
    known = (PROJECT / "docs/configuration.md").read_text() + (PROJECT / "docs/metrics.md").read_text()
    keys = set(re.findall(r"`(twinlog\.[a-z.]+)`", PAGES))
    assert keys
    assert {key for key in keys if f"`{key}`" not in known} == set()
    series = set(re.findall(r"`((?:twinlog|process)_[a-z_]+)`", PAGES))
    labels = {attribute.replace(".", "_") for spec in METRICS for attribute in spec.attributes}
    assert series <= {prometheus_name(spec) for spec in METRICS} | labels


@pytest.mark.parametrize(
    ("name", "key"),
    [("TwinlogOwnerFlapping", "twinlog.owner.timeout.seconds"), ("TwinlogLagOverRpo", "twinlog.max.slots")],
)
def test_a_remedy_names_the_key_that_decides(name: str, key: str) -> None:
    assert f"`{key}`" in SECTIONS[name]
