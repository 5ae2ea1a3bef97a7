"""Configurations after those of public estates: each becomes a file that the services take, or is refused by
file, line and remedy. What is expected of each stands in hold_out/expected.yaml."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from twinlog.config import load
from twinlog.errors import ConfigError
from twinlog.imports import Fate, Format, ImportOptions, import_text
from twinlog.imports.draft import Line
from twinlog.imports.mirror_maker1 import MirrorMaker1, mirror_maker_file
from twinlog.properties import parse
from unit.cases import about

HOLD_OUT = Path(__file__).with_name("hold_out")
EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load((HOLD_OUT / "expected.yaml").read_text())
READ_AS_THEY_ARE = [name for name in EXPECTED if name.startswith("mm2-")]
REFUSED = [name for name, wanted in EXPECTED.items() if "refused" in wanted]
IMPORTED = [name for name in EXPECTED if name not in (*READ_AS_THEY_ARE, *REFUSED)]


def imported(name: str) -> tuple[str, Sequence[Line]]:
    """The properties file and the report."""
    options = dict(EXPECTED[name].get("options", {}))
    if name.startswith("mm1-"):
        consumer, producer = (HOLD_OUT / f"{name}.{side}.properties" for side in ("consumer", "producer"))
        mirror = MirrorMaker1(
            consumer=parse(consumer.read_bytes(), file=consumer.name),
            consumer_file=consumer.name,
            producer=parse(producer.read_bytes(), file=producer.name),
            producer_file=producer.name,
            include=options["include"],
        )
        written = mirror_maker_file(mirror)
        return written.properties, written.lines
    if "format" in options:
        options["format"] = Format(options["format"])
    text = (HOLD_OUT / name).read_bytes().decode()
    found = import_text(text, file=name, options=ImportOptions(**options))
    return found.properties, found.lines


def test_each_file_has_an_expectation() -> None:
    names = {path.name for path in HOLD_OUT.iterdir()} - {"expected.yaml"}
    sides = {f"{name}.{side}.properties" for name in EXPECTED for side in ("consumer", "producer")}
    assert names - sides == {name for name in EXPECTED if not name.startswith("mm1-")}


def test_it_becomes_a_file_with_these_settings_and_reports_what_is_left_out() -> None:
    for name in IMPORTED:
        with about(name):
            wanted = EXPECTED[name]
            text, report = imported(name)
            settings = [line for line in text.splitlines() if not line.startswith("#")]
            assert set(wanted["sets"]) <= set(settings)
            assert not [each for each in settings for words in wanted.get("leaves", ()) if words in each]
            for fate, line, words in wanted.get("told", ()):
                assert any(
                    (each.fate, each.line) == (fate, line) and words in each.text for each in report
                ), words
            assert all(each.place and each.text for each in report if each.fate is not Fate.MAPPED)
            assert "is refused as it is" not in text, "the services take it"


def test_a_flow_whose_copies_would_not_be_continued_does_not_run() -> None:
    """It has a place to begin at, and nothing that was impossible concerns its copies."""
    for name in IMPORTED:
        with about(name):
            settings = dict(line.split("=", 1) for line in imported(name)[0].splitlines() if "=" in line)
            running = [key.removesuffix(".enabled") for key, value in settings.items() if "->" in key
                       and key.endswith(".enabled") and key.count(".") == 1 and value == "true"]  # fmt: skip
            for flow in running:
                begins = (f"{flow}.twinlog.start.group", f"{flow}.offsets.storage.topic")
                assert any(settings.get(key) for key in begins), flow


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_file_line_and_remedy(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _ = load(HOLD_OUT / name, environ={}) if name in READ_AS_THEY_ARE else imported(name)
    for words in (name, *EXPECTED[name]["refused"]):
        assert words in str(refused.value)


@pytest.mark.parametrize("name", [name for name in READ_AS_THEY_ARE if name not in REFUSED])
def test_a_file_of_the_dedicated_mode_is_taken_as_it_is(name: str) -> None:
    wanted = EXPECTED[name]
    found = load(HOLD_OUT / name, environ={})
    assert {str(each.flow): each.enabled for each in found.flows} == wanted["flows"]
    for level, line, words in wanted.get("told", ()):
        said = [each for each in found.notices if (each.level, each.line) == (level, line)]
        assert any(words in str(each) for each in said), found.notices
