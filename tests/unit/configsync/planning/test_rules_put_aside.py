"""A rule replaces a value of the file. Whoever changes the file afterwards is not overruled in silence: the
owner puts the rule aside until somebody decides."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from twinlog.errors import StateError, TransientKafkaError
from twinlog.service.feeds.registry import stored_rules
from twinlog.service.feeds.rules_record import NO_RULES, RuleOrigin, RulesRecord, decode_rules
from twinlog.testing.brokers import eventually
from twinlog_configsync.flow.commands import Asked
from twinlog_configsync.planning.live_rules import RuleChange, RuleOperation
from unit.configsync.configsync_rig import ConfigSyncRig, make_flow

IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
SET, ADD, _, RESET, RESTORE = RuleOperation


def change(operation: RuleOperation, value: str = "") -> RuleChange:
    return RuleChange(key="topics", operation=operation, value=value)


def with_file(flow: ConfigSyncRig, directory: Path, **properties: str) -> ConfigSyncRig:
    """Another process, with another file, of the same clusters."""
    directory.mkdir()
    given = {key.replace("_", "."): value for key, value in properties.items()}
    return make_flow(directory, given, source=flow.source, target=flow.target)


@pytest.fixture
async def flow(tmp_path: Path) -> ConfigSyncRig:
    """The file says `orders`, a rule of ann's replaced that by `txt`."""
    flow = make_flow(tmp_path, {"topics": "orders", "heartbeats.replication.enabled": "false"})
    for name in ("orders", "txt", "acct"):
        flow.source.add_topic(name)
    flow.passes.take_over()
    await flow.refresh()
    await flow.commands.update_rules([change(SET, "txt")], asked=Asked(by="ann"))
    await flow.refresh()
    assert sorted(flow.topics()) == ["txt"]
    return flow


@pytest.fixture
async def changed(flow: ConfigSyncRig, tmp_path: Path) -> ConfigSyncRig:
    """The owner's next start, with a file that says `acct` and another policy."""
    changed = with_file(flow, tmp_path / "changed", topics="acct", replication_policy_class=IDENTITY)
    changed.passes.take_over()
    await changed.refresh()
    return changed


def ruled(flow: ConfigSyncRig) -> dict[str, tuple[str, bool, str | None]]:
    return {
        rule.key: (rule.value, rule.changed, rule.aside)
        for rule in flow.commands.rules().rules
        if rule.changed or rule.aside is not None
    }


async def test_a_rule_of_an_unchanged_file_outlives_a_restart(flow: ConfigSyncRig) -> None:
    flow.restart()
    flow.passes.take_over()
    with capture_logs() as logs:
        await flow.refresh()
    assert ruled(flow) == {"topics": ("txt", True, None)}
    [told] = [log for log in logs if log["event"] == "rule_differs_from_file"]
    assert told["log_level"] == "warning"
    assert "the file has 'orders'" in told["message"]
    assert "by ann" in told["message"]


async def test_a_changed_file_wins_and_the_rule_is_put_aside(changed: ConfigSyncRig) -> None:
    assert sorted(changed.topics()) == ["acct"]
    assert sorted(changed.target.topics.keys() & {"orders", "txt", "acct"}) == ["acct"]
    assert ruled(changed) == {"topics": ("acct", False, "txt")}
    stored = await stored_rules(changed.target, changed.config.flow)
    assert (stored.revision, stored.values, stored.aside) == (2, {}, {"topics": "txt"})
    assert stored.origins["topics"].replaced == "orders"
    last = changed.passes.memory.changes[-1]
    assert (last.method, last.before, last.after) == (
        "PutRulesAside",
        {"topics": "txt"},
        {"topics (put aside)": "txt"},
    )


async def test_nobody_follows_the_rule_before_it_is_put_aside(flow: ConfigSyncRig, tmp_path: Path) -> None:
    changed = with_file(flow, tmp_path / "changed", topics="acct")
    changed.passes.take_over()
    told: list[RulesRecord] = []
    changed.told.show = lambda *_: told.append(changed.passes.memory.rules or NO_RULES)  # type: ignore[method-assign]
    await changed.refresh()
    assert told
    assert all(each.values == {} for each in told)


async def test_it_stays_aside_when_the_file_goes_back_until_somebody_restores_it(
    flow: ConfigSyncRig, changed: ConfigSyncRig
) -> None:
    flow.restart()
    flow.passes.take_over()
    await flow.refresh()
    assert sorted(flow.topics()) == ["orders"]
    checked = await flow.commands.update_rules([change(RESTORE)], dry_run=True)
    assert ("topics", "txt", True) in {(rule.key, rule.value, rule.changed) for rule in checked.rules}
    assert ruled(flow) == {"topics": ("orders", False, "txt")}
    await flow.commands.update_rules([change(RESTORE)], asked=Asked(by="bob"))
    await flow.refresh()
    assert sorted(flow.topics()) == ["txt"]
    assert (await stored_rules(flow.target, flow.config.flow)).origins["topics"].by == "bob"


async def test_a_restored_rule_replaces_what_the_file_says_now(changed: ConfigSyncRig) -> None:
    await changed.commands.update_rules([change(RESTORE)])
    changed.restart()
    changed.passes.take_over()
    await changed.refresh()
    assert ruled(changed) == {"topics": ("txt", True, None)}


@pytest.mark.parametrize(
    ("operation", "value", "left"),
    [(RESET, "", {}), (SET, "txt, acct", {"topics": ("txt, acct", True, None)})],
)
async def test_it_is_dropped_or_replaced(
    changed: ConfigSyncRig, operation: RuleOperation, value: str, left: dict[str, object]
) -> None:
    await changed.commands.update_rules([change(operation, value)])
    assert ruled(changed) == left


async def test_a_standby_with_another_file_says_so_and_puts_nothing_aside(
    flow: ConfigSyncRig, tmp_path: Path
) -> None:
    other = with_file(flow, tmp_path / "other", topics="acct")
    other.refusal = StateError("another process has it", reason="OWNED_ELSEWHERE")
    with capture_logs() as logs:
        await other.passes.follow()
        await other.passes.follow()
    assert [log["keys"] for log in logs if log["event"] == "rules_of_another_file"] == [["topics"]]
    assert ruled(other) == {"topics": ("txt", True, None)}
    assert (await stored_rules(flow.target, flow.config.flow)).aside == {}


async def test_a_process_follows_no_stored_rule_before_it_knows_who_owns_the_flow(
    flow: ConfigSyncRig, tmp_path: Path
) -> None:
    """It may be its own file that puts the rule aside a moment later."""
    other = with_file(flow, tmp_path / "other", topics="acct")
    other.refusal = TransientKafkaError("being found out", reason="STARTING")
    await other.sync.follow_owner()
    assert (ruled(other), other.passes.loaded) == ({}, False)
    other.refusal = StateError("another process has it", reason="OWNED_ELSEWHERE")
    await other.sync.follow_owner()
    assert ruled(other) == {"topics": ("txt", True, None)}


async def test_a_process_puts_rules_aside_once_it_owns_the_flow(flow: ConfigSyncRig, tmp_path: Path) -> None:
    other = with_file(flow, tmp_path / "other", topics="acct")
    await other.passes.follow()
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(other.sync.run(stop), name="loop")
        await eventually(lambda: sorted(other.topics()) == ["acct"])
        stop.set()
    assert ruled(other) == {"topics": ("acct", False, "txt")}


async def test_what_a_rule_of_an_earlier_release_replaced_is_recorded_at_the_first_start(
    flow: ConfigSyncRig, tmp_path: Path
) -> None:
    old = RulesRecord(revision=1, updated_at_ms=0, values={"topics": "txt"})
    await flow.passes.keep(flow.passes.memory.__class__(rules=old))
    flow.restart()
    flow.passes.take_over()
    await flow.refresh()
    stored = await stored_rules(flow.target, flow.config.flow)
    assert (stored.revision, stored.origins) == (1, {"topics": RuleOrigin(replaced="orders")})
    changed = with_file(flow, tmp_path / "changed", topics="acct")
    changed.passes.take_over()
    await changed.refresh()
    assert ruled(changed) == {"topics": ("acct", False, "txt")}


async def test_an_earlier_release_reads_what_is_in_force_and_nothing_else(changed: ConfigSyncRig) -> None:
    """It knows revision, time and values, and leaves the other fields out."""
    stored = await stored_rules(changed.target, changed.config.flow)
    known = {"version": 1, "revision": stored.revision, "updated_at_ms": 0, "values": dict(stored.values)}
    assert decode_rules(known).values == {}


async def test_why_a_topic_is_not_copied_names_the_rule_beside_the_file(changed: ConfigSyncRig) -> None:
    [found] = [each for each in await changed.commands.explain("txt") if each.cluster == "A"]
    assert "topics: the file has 'acct', and had 'orders' when a rule of" in found.rule
    assert "twinlog rules restore 'A->B' topics" in found.rule
