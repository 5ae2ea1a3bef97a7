"""docs/operations.md: what somebody reads whom an alert has woken."""

import re

import pytest
from deploy.observability.alerts import ALERTS

from unit.deploy.wheels import PROJECT

PAGE = (PROJECT / "docs/operations.md").read_text()
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("name", [alert.name for alert in ALERTS])
def test_every_alert_has_a_section_that_says_what_it_means_and_what_to_do(name: str) -> None:
    asked = [re.escape(f"- **{word}") for word in ("Means.**", "Look at.**", "Do.**", "Do not**")]
    assert re.search(".*".join(asked), SECTIONS[name], re.DOTALL)


def test_no_section_is_of_an_alert_that_is_gone() -> None:
    known = {alert.name for alert in ALERTS}
    assert {name for name in SECTIONS if name.startswith("Twinlog")} == known


def test_every_command_of_the_page_exists() -> None:
    from twinlog.cli import COMMANDS

    used = set(re.findall(r"`twinlog ([a-z-]+)", PAGE))
    assert used - set(COMMANDS) == set()
