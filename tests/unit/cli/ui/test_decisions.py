"""What `twinlog ui` decides before anything is drawn or served."""

import hashlib
import json
from pathlib import Path

import pytest

import twinlog.cli
from twinlog.cli.status.rows import FENCE, FlowRow, InForce
from twinlog.cli.ui.access import SECURITY_HEADERS, is_own_host, refuse_open_page
from twinlog.cli.ui.feed import KEPT_FRAMES, Feed
from twinlog.cli.verdict.issues import Verdict
from twinlog.cli.verdict.moving import (
    GO,
    NO_GO,
    WAIT,
    Drain,
    LagHistory,
    Sample,
    drain_of,
    fences,
    overall,
    readiness,
    until_the_slowest,
)
from twinlog.config import Address
from twinlog.errors import ConfigError

PAGE = Path(twinlog.cli.__file__).parent / "ui" / "page"
NOTHING = Verdict(issues=[])
LOOPBACK = Address(host="127.0.0.1", port=8890)


def ready_flow() -> FlowRow:
    row = FlowRow(flow="A->B", records=9, lag_records=0, path="ALIVE", delay_seconds=0.1, group_count=1)
    row.groups = {"EXACT": 3}
    return row


def test_a_flow_without_lag_problems_and_gaps_may_be_moved() -> None:
    checks = readiness(ready_flow(), NOTHING, Drain(state="DRAINED"))
    assert overall(checks) == GO
    assert {(check.verdict, check.command) for check in checks} == {(GO, "")}
    row = ready_flow()
    row.groups = {"EXACT": 3, "NOT_REPLICATED": 1, "ACTIVE_ON_TARGET": 2}
    checks = readiness(row, NOTHING, Drain(state="DRAINED"))
    assert overall(checks) == GO
    assert "2 offsets ACTIVE_ON_TARGET, 1 offset NOT_REPLICATED" in {check.message for check in checks}


def test_what_a_service_that_is_away_would_tell_is_never_called_good() -> None:
    row = ready_flow()
    row.records, row.lag_records, row.group_count = None, None, None
    told = {check.title: check for check in readiness(row, NOTHING, Drain(state="UNKNOWN"))}
    for title in (
        "Losses are dealt with",
        "No difference of a copy is known",
        "No earlier move is unfinished",
    ):
        assert told[title].verdict == NO_GO
        assert told[title].message.endswith(" are not known")


def test_what_was_acknowledged_or_never_compared_is_not_told_as_if_nothing_were_wrong() -> None:
    row = ready_flow()
    checks = {check.title: check.message for check in readiness(row, NOTHING, Drain(state="DRAINED"))}
    assert checks["Losses are dealt with"] == "none is recorded"
    row.lost_acknowledged, row.lost_acknowledged_by, row.proofs = 2_475, ["ana", "ben"], {}
    told = readiness(row, NOTHING, Drain(state="DRAINED"))
    checks = {check.title: check.message for check in told}
    assert overall(told) == GO
    assert checks["Losses are dealt with"] == "2,475 source offsets are lost, acknowledged by ana, ben"
    assert checks["No difference of a copy is known"] == "not compared: `twinlog verify 'A->B'` does"
    row.proofs = {"EQUAL": 2}
    checks = {check.title: check.message for check in readiness(row, NOTHING, Drain(state="DRAINED"))}
    assert checks["No difference of a copy is known"].startswith("2 of ")


def test_a_backlog_that_drains_is_waited_for_and_one_that_grows_is_said_to_lose() -> None:
    row = ready_flow()
    row.lag_records = 500
    draining = drain_of([Sample(0.0, 1000), Sample(10.0, 500)])
    assert overall(readiness(row, NOTHING, draining)) == WAIT
    losing = drain_of([Sample(0.0, 100), Sample(10.0, 500)])
    assert losing == Drain(state="LOSING", records_per_second=-40.0)
    checks = readiness(row, NOTHING, losing)
    assert overall(checks) == NO_GO
    assert checks[2].message == "500 records left, and 40 more each second"
    assert checks[2].command == "twinlog partitions 'A->B'"


def test_a_backlog_lasts_as_long_as_its_slowest_partition() -> None:
    draining = drain_of([Sample(0.0, 1000), Sample(10.0, 500)])
    assert until_the_slowest(draining, 95.0).seconds_left == 95.0
    assert until_the_slowest(draining, None) == draining
    losing = drain_of([Sample(0.0, 100), Sample(10.0, 500)])
    assert until_the_slowest(losing, 95.0) == losing


def test_the_speed_is_that_of_the_last_minute_and_unknown_over_a_moment() -> None:
    history = LagHistory()
    assert history.add(Sample(0.0, 1_000_000)).state == "UNKNOWN"
    assert history.add(Sample(1.0, 900_000)).state == "UNKNOWN"
    assert history.add(Sample(100.0, 600)).state == "UNKNOWN"
    assert history.add(Sample(110.0, None)).state == "UNKNOWN"
    assert history.add(Sample(120.0, 400)) == Drain(
        state="DRAINING", records_per_second=10.0, seconds_left=40.0
    )


def test_a_fence_is_named_and_is_no_blocker() -> None:
    row = ready_flow()
    row.in_force = [InForce(kind=FENCE, about="A->B", message="writes to 2 topics on A are denied")]
    assert fences(row) == ["writes to 2 topics on A are denied"]
    assert overall(readiness(row, NOTHING, Drain(state="DRAINED"))) == GO


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8890", "localhost:8890", "localhost", "[::1]:8890", "twin.local"]
)
def test_a_browser_that_names_this_server_is_let_in(host: str) -> None:
    assert is_own_host(host, LOOPBACK, frozenset({"twin.local"}))


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8890", "127.0.0.1.evil.example:8890", ""])
def test_a_name_of_somebody_elses_dns_is_refused(host: str) -> None:
    assert not is_own_host(host, LOOPBACK, frozenset())


def test_a_page_beyond_this_machine_needs_tls_and_tokens_or_consent() -> None:
    everywhere = Address(host="0.0.0.0", port=8890)
    for tls, tokens in ((False, False), (True, False), (False, True)):
        with pytest.raises(ConfigError, match="--insecure"):
            refuse_open_page(everywhere, tls=tls, tokens=tokens, insecure=False)
    refuse_open_page(everywhere, tls=True, tokens=True, insecure=False)
    refuse_open_page(everywhere, tls=False, tokens=False, insecure=True)
    refuse_open_page(LOOPBACK, tls=False, tokens=False, insecure=False)


def test_no_browser_grows_the_memory_and_one_far_behind_gets_a_snapshot() -> None:
    feed = Feed(["flows", "history"], in_snapshots_only=["history"])
    for lag in range(2 * KEPT_FRAMES):
        feed["flows"].put("A->B", {"lag": lag})
        feed["history"].put("A->B", [lag])
        assert feed.next_turn()
    newest = feed.turn
    assert len(feed.since(newest - KEPT_FRAMES)) == KEPT_FRAMES
    (snapshot,) = feed.since(newest - KEPT_FRAMES - 1)
    assert snapshot.startswith(b"event: snapshot")
    assert b'"history":{"A->B":[59]}' in snapshot
    (delta,) = feed.since(newest - 1)
    assert b'"lag":59' in delta
    assert b"history" not in delta
    assert not feed.next_turn()
    feed["flows"].remove("A->B")
    assert feed.next_turn()
    assert b'"removed":["A->B"]' in feed.since(newest)[0]


def test_the_libraries_of_the_page_are_those_that_the_manifest_pins() -> None:
    manifest = json.loads((PAGE / "vendor" / "vendor.json").read_text())
    pinned = {
        name: entry["sha256"] for library in manifest.values() for name, entry in library["files"].items()
    }
    there = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in (PAGE / "vendor").iterdir()
        if file.name != "vendor.json"
    }
    assert there == pinned
    assert all(any(name.endswith("LICENSE") for name in library["files"]) for library in manifest.values())


def test_the_page_asks_no_other_site_and_runs_no_inline_script() -> None:
    assert "'unsafe-" not in SECURITY_HEADERS["Content-Security-Policy"]
    document = (PAGE / "index.html").read_text()
    assert "http://" not in document
    assert "https://" not in document
    assert "<style" not in document
    assert "style=" not in document
