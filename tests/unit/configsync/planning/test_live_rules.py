"""Rules changed while a flow runs: checked, durable, in effect at once; the file stays the base."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from twinlog.config import load
from twinlog.config.values.live import LIVE_KEYS
from twinlog.errors import ConfigError, ConflictError, TransientKafkaError
from twinlog.model import TopicPartition
from twinlog.service.feeds.rules_record import NO_RULES, RulesRecord
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.cluster import Call
from twinlog_configsync.config import configsync_flows
from twinlog_configsync.flow.commands import Asked
from twinlog_configsync.model.memory import Memory, recall
from twinlog_configsync.model.reasons import SyncReason
from twinlog_configsync.model.records import (
    AUDIT_PLACES,
    RecordKey,
    StoredKind,
    decode_value,
    encode_key,
    encode_value,
)
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.live_rules import FileRules, RuleChange, RuleOperation, change_rules
from unit.configsync.configsync_rig import REGISTRY, ConfigSyncRig, make_flow

FILE = FileRules(
    values={"topics": "orders, users", "topics.exclude": "", "refresh.topics.interval.seconds": "30"},
    written={"topics": "orders, users"},
)


def change(operation: RuleOperation, key: str, value: str = "") -> RuleChange:
    return RuleChange(key=key, operation=operation, value=value)


SET, ADD, REMOVE, RESET, RESTORE = RuleOperation


@pytest.mark.parametrize(
    ("changes", "values"),
    [
        ([change(SET, "topics", "carts,  .*-eu")], {"topics": "carts, .*-eu"}),
        ([change(ADD, "topics", "carts")], {"topics": "orders, users, carts"}),
        ([change(ADD, "topics", "users, carts")], {"topics": "orders, users, carts"}),
        ([change(REMOVE, "topics", "orders")], {"topics": "users"}),
        ([change(SET, "topics", "carts, users, carts")], {"topics": "carts, users"}),
        ([change(ADD, "topics.exclude", "old-.*")], {"topics.exclude": "old-.*"}),
        ([change(ADD, "topics", "carts"), change(REMOVE, "topics", "carts")], {}),
        ([change(SET, "topics", "carts"), change(RESET, "topics")], {}),
        ([change(SET, "refresh.topics.interval.seconds", "5")], {"refresh.topics.interval.seconds": "5"}),
        ([change(SET, "refresh.topics.interval.seconds", "30")], {}),
        ([change(RESET, "topics")], {}),
    ],
)
def test_changes_are_made_in_order_and_what_equals_the_file_is_no_change(
    changes: list[RuleChange], values: dict[str, str]
) -> None:
    assert change_rules(changes, NO_RULES, FILE).values == values


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (change(SET, "A.bootstrap.servers", "x:1"), "cannot be changed while a flow runs"),
        (change(SET, "offset.storage.topic", "x"), "cannot be changed while a flow runs"),
        (change(SET, "twinlog.transform.where", "true"), "has the source's offsets, .* gets its own"),
        (change(SET, "topic", "x"), r"did you mean topics\?"),
        (change(ADD, "refresh.topics.interval.seconds", "5"), "is not a list"),
        (change(REMOVE, "topics", "carts"), "'carts' is not in the list"),
        (change(ADD, "topics", "a,,b"), "is empty"),
        (change(RESTORE, "topics"), "no rule of this key was put aside"),
    ],
)
def test_what_cannot_be_changed_so_is_refused_and_named(wrong: RuleChange, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        change_rules([wrong], NO_RULES, FILE)
    assert refused.value.metadata["key"] == wrong.key


@pytest.fixture
async def flow(tmp_path: Path) -> ConfigSyncRig:
    flow = make_flow(tmp_path, {"topics": "orders.*", "heartbeats.replication.enabled": "false"})
    for name in ("orders", "orders-eu", "users"):
        flow.source.add_topic(name)
    await flow.refresh()
    return flow


async def test_every_live_key_is_shown_with_what_the_file_says(flow: ConfigSyncRig) -> None:
    view = flow.commands.rules()
    assert [rule.key for rule in view.rules] == sorted(LIVE_KEYS)
    assert {rule.key: rule.value for rule in view.rules}["topics"] == "orders.*"
    assert not any(rule.changed for rule in view.rules)


async def test_a_changed_selection_is_in_effect_with_the_next_pass_and_touches_nothing_else(
    flow: ConfigSyncRig,
) -> None:
    before = flow.topics()
    await flow.commands.update_rules(
        [change(ADD, "topics", "users"), change(ADD, "topics.exclude", "orders-eu")]
    )
    await flow.refresh()
    assert sorted(flow.topics()) == ["orders", "users"]
    assert flow.topics()["orders"] == before["orders"]
    assert not flow.topics()["users"].created_after_start
    assert "A.orders-eu" in flow.target.topics


async def test_a_topic_that_came_later_is_new_even_if_a_rule_selects_it_only_then(
    flow: ConfigSyncRig,
) -> None:
    flow.source.add_topic("carts")
    await flow.commands.update_rules([change(ADD, "topics", "carts")])
    await flow.refresh()
    assert flow.topics()["carts"].created_after_start


async def test_changes_survive_a_restart_and_reset_goes_back_to_the_file(flow: ConfigSyncRig) -> None:
    await flow.commands.update_rules([change(SET, "topics", "users")])
    flow.restart()
    await flow.refresh()
    assert sorted(flow.topics()) == ["users"]
    view = flow.commands.rules()
    assert [(rule.key, rule.value, rule.file_value) for rule in view.rules if rule.changed] == [
        ("topics", "users", "orders.*")
    ]
    await flow.commands.update_rules([change(RESET, "topics")])
    await flow.refresh()
    assert sorted(flow.topics()) == ["orders", "orders-eu"]


@pytest.mark.parametrize(
    ("key", "value"),
    [("topics", "*"), ("refresh.topics.interval.seconds", "0"), ("twinlog.sync.topic.acls.mode", "all")],
)
async def test_a_value_the_file_could_not_have_changes_nothing(
    flow: ConfigSyncRig, key: str, value: str
) -> None:
    with pytest.raises(ConfigError):
        await flow.commands.update_rules([change(ADD, "topics", "users"), change(SET, key, value)])
    assert flow.commands.rules().revision == 0
    await flow.refresh()
    assert sorted(flow.topics()) == ["orders", "orders-eu"]


async def test_a_dry_run_checks_and_changes_nothing(flow: ConfigSyncRig) -> None:
    view = await flow.commands.update_rules([change(ADD, "topics", "users")], dry_run=True)
    assert {rule.key: rule.value for rule in view.rules}["topics"] == "orders.*, users"
    assert flow.commands.rules().revision == 0


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("key", "value", "stopped"),
    [
        ("topics", "", ("orders", "orders-eu")),
        ("topics", "order-.*", ("orders", "orders-eu")),
        ("topics", "orders", ("orders-eu",)),
        ("topics.exclude", "orders", ("orders",)),
        ("topics", "orders.*, users", ()),
    ],
)
async def test_a_change_says_which_topics_it_stops(
    flow: ConfigSyncRig, key: str, value: str, stopped: tuple[str, ...], *, dry_run: bool
) -> None:
    await flow.refresh()
    view = await flow.commands.update_rules([change(SET, key, value)], dry_run=dry_run)
    assert view.stopped == stopped
    assert flow.commands.rules().stopped == ()
    with capture_logs() as logs:
        await flow.refresh()
    told = [each["topics"] for each in logs if each["event"] == "topics_no_longer_copied"]
    assert told == ([len(stopped)] if stopped and not dry_run else [])


async def test_of_two_who_change_at_once_the_second_is_told(flow: ConfigSyncRig) -> None:
    await flow.commands.update_rules([change(ADD, "topics", "users")], expected_revision=0)
    with pytest.raises(ConflictError) as late:
        await flow.commands.update_rules([change(SET, "topics", "carts")], expected_revision=0)
    assert late.value.reason == SyncReason.RULES_CHANGED
    await flow.commands.update_rules([change(SET, "topics", "carts")], expected_revision=1)


async def test_a_change_that_could_not_be_stored_is_not_in_effect(flow: ConfigSyncRig) -> None:
    def timeout(_call: Call) -> None:
        raise TransientKafkaError("no answer in time", reason="KAFKA_TIMEOUT", code=7)

    undo = flow.target.intercept("append", timeout)
    with pytest.raises(TransientKafkaError):
        await flow.commands.update_rules([change(ADD, "topics", "users")])
    undo()
    await flow.refresh()
    assert sorted(flow.topics()) == ["orders", "orders-eu"]


@pytest.mark.parametrize("restarted", [False, True])
async def test_rules_change_while_the_source_is_away(flow: ConfigSyncRig, restarted: bool) -> None:
    await flow.refresh()
    flow.source.take_away()
    if restarted:
        flow.restart()
    await flow.commands.update_rules([change(SET, "topics", "users")])
    assert [rule.value for rule in flow.commands.rules().rules if rule.changed] == ["users"]
    flow.source.bring_back()
    await flow.refresh()
    assert sorted(flow.topics()) == ["users"]


async def test_no_rule_is_written_where_the_source_was_never_known(tmp_path: Path) -> None:
    """Its target may be the source itself: nothing is created there before that is known."""
    flow = make_flow(tmp_path, {"topics": "orders.*"})
    flow.source.take_away()
    with pytest.raises(TransientKafkaError):
        await flow.commands.update_rules([change(SET, "topics", "users")])
    assert REGISTRY not in await flow.target.list_topics()


SECRET = "hunter2-real-secret"


@pytest.fixture
async def flow_with_secrets(tmp_path: Path) -> ConfigSyncRig:
    """The file's providers reach a secret: a file, a directory and the environment."""
    (tmp_path / "secrets.properties").write_text(f"b.password = {SECRET}(\n")
    flow = make_flow(
        tmp_path,
        {
            "topics": "orders.*",
            "config.providers": "file, dir, env",
            "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
            "config.providers.dir.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
            "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        },
    )
    flow.source.add_topic("orders")
    await flow.refresh()
    return flow


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("operation", [SET, ADD])
@pytest.mark.parametrize(
    "reference", ["${file:{dir}/secrets.properties:b.password}", "${dir:{dir}:secrets.properties}"]
)
async def test_a_reference_in_a_call_is_refused_and_never_resolved(
    flow_with_secrets: ConfigSyncRig, tmp_path: Path, reference: str, operation: RuleOperation, dry_run: bool
) -> None:
    value = reference.replace("{dir}", str(tmp_path))
    with pytest.raises(ConfigError) as refused:
        await flow_with_secrets.commands.update_rules([change(operation, "topics", value)], dry_run=dry_run)
    assert refused.value.reason == "REFERENCE_REFUSED"
    assert SECRET not in f"{refused.value}{refused.value.metadata}"
    assert flow_with_secrets.commands.rules().revision == 0


async def test_a_reference_in_a_stored_rule_is_refused_and_never_resolved(
    flow_with_secrets: ConfigSyncRig, tmp_path: Path
) -> None:
    flow = flow_with_secrets
    forged = RulesRecord(
        revision=7,
        updated_at_ms=0,
        values={"topics": f".*|${{file:{tmp_path}/secrets.properties:b.password}}"},
    )
    await store(flow, forged)
    flow.restart()
    await flow.refresh()
    view = flow.commands.rules()
    assert "cannot hold '${'" in view.problem
    assert SECRET not in repr(view)
    assert sorted(flow.topics()) == ["orders"]


async def test_a_stored_rule_is_followed_once_the_secrets_of_the_file_can_be_read_again(
    tmp_path: Path,
) -> None:
    """It is the right rule; nobody changes it again."""
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(f"b.password = {SECRET}\n")
    flow = make_flow(
        tmp_path,
        {
            "topics": "orders.*",
            "config.providers": "file",
            "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
            "B.ssl.key.password": f"${{file:{secrets}:b.password}}",
        },
    )
    for name in ("orders", "users"):
        flow.source.add_topic(name)
    await flow.refresh()
    await store(flow, RulesRecord(revision=7, updated_at_ms=0, values={"topics": "users"}))
    secrets.rename(tmp_path / "away")
    flow.restart()
    await flow.refresh()
    assert (sorted(flow.topics()), bool(flow.commands.rules().problem)) == (["orders"], True)
    (tmp_path / "away").rename(secrets)
    await flow.refresh()
    assert flow.commands.rules().problem, "each try loads the whole file"
    flow.clock.advance(2.0)
    await flow.refresh()
    assert (sorted(flow.topics()), flow.commands.rules().problem) == (["users"], "")


async def test_intervals_of_stored_rules_hold_from_the_pass_on_that_reads_them(flow: ConfigSyncRig) -> None:
    """A part that they switch off is synced once, with the file's rules, and not again."""
    await flow.refresh()
    await store(flow, RulesRecord(revision=7, updated_at_ms=0, values={"sync.topic.acls.enabled": "false"}))
    flow.restart()
    stop = flow.stop
    async with asyncio.TaskGroup() as group:
        group.create_task(flow.sync.run(stop), name="loop")
        await eventually(lambda: Scope.ACLS not in flow.sync.schedule.interval_seconds)
        stop.set()
    assert flow.sync.schedule.interval_seconds == flow.sync.passes.rules.intervals_seconds


async def test_a_stored_key_that_is_not_live_is_not_followed_and_can_be_reset(flow: ConfigSyncRig) -> None:
    await store(flow, RulesRecord(revision=7, updated_at_ms=0, values={"replication.policy.separator": "_"}))
    flow.restart()
    await flow.refresh()
    assert "replication.policy.separator" in flow.commands.rules().problem
    await flow.commands.update_rules([change(RESET, "replication.policy.separator")])
    assert flow.commands.rules().problem == ""


async def store(flow: ConfigSyncRig, record: RulesRecord) -> None:
    async with flow.target.writer() as writer:
        await writer.append(
            TopicPartition(REGISTRY, 0),
            key=encode_key(RecordKey(StoredKind.RULES)),
            value=encode_value(record),
        )


async def test_an_update_wakes_the_loop_and_changes_its_intervals(flow: ConfigSyncRig) -> None:
    stop = flow.stop
    async with asyncio.TaskGroup() as group:
        loop = group.create_task(flow.sync.run(stop), name="loop")
        await flow.commands.update_rules(
            [change(ADD, "topics", "users"), change(SET, "sync.topic.acls.enabled", "false")]
        )
        await eventually(lambda: "users" in flow.topics())
        stop.set()
        await loop
    assert Scope.ACLS not in flow.sync.passes.rules.intervals_seconds


def test_a_changed_rule_that_would_make_a_loop_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B, C\nA.bootstrap.servers = a:1\n"
        "B.bootstrap.servers = b:1\nC.bootstrap.servers = c:1\n"
        "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
        "A->B.enabled = true\nA->B.topics = orders\n"
        "B->C.enabled = true\nB->C.topics = users\nC->A.enabled = true\nC->A.topics = users\n"
    )
    flow, _, _ = configsync_flows(load(file, environ={}))
    assert flow.with_values({"topics": "orders, carts"}).selector.selects("carts")
    with pytest.raises(ConfigError, match="in a loop"):
        flow.with_values({"topics": "orders, u.*"})


@pytest.mark.parametrize(("before", "after"), [("60", "-1"), ("-1", "60")])
def test_a_negative_interval_in_a_rule_switches_off_and_is_refused_for_checkpoints(
    tmp_path: Path, before: str, after: str
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
        f"emit.checkpoints.interval.seconds = {before}\n"
    )
    (flow,) = configsync_flows(load(file, environ={}))
    assert Scope.ACLS not in flow.with_values({"sync.topic.acls.interval.seconds": "-1"}).intervals_seconds
    with pytest.raises(ConfigError, match="write the interval into the properties file and restart"):
        flow.with_values({"emit.checkpoints.interval.seconds": after})


async def test_who_changed_what_is_on_the_log_with_before_and_after(flow: ConfigSyncRig) -> None:
    ann = Asked(by="CN=ann", peer="ipv4:10.0.0.7:4711")
    await flow.commands.update_rules([change(SET, "topics", "users")], asked=ann)
    await flow.commands.update_rules([change(SET, "topics", "carts")], dry_run=True, asked=ann)
    await flow.commands.update_rules([change(RESET, "topics")], asked=Asked(by="sub:7", peer="unix:"))
    flow.restart()
    await flow.refresh()
    told = [
        (each.number, each.method, each.by, each.peer, dict(each.before), dict(each.after))
        for each in flow.passes.memory.changes
    ]
    assert told == [
        (0, "UpdateRules", "CN=ann", "ipv4:10.0.0.7:4711", {}, {"topics": "users"}),
        (1, "UpdateRules", "sub:7", "unix:", {"topics": "users"}, {}),
    ]
    assert all(each.at_ms > 0 for each in flow.passes.memory.changes)


async def test_who_applied_a_plan_is_on_the_log(flow: ConfigSyncRig) -> None:
    flow.source.add_topic("orders-us")
    plan, _ = await flow.commands.preview()
    await flow.commands.apply(plan.plan_id, asyncio.Event(), asked=Asked(by="CN=ops", peer="p"))
    (change,) = flow.passes.memory.changes
    assert (change.method, change.by, change.before) == ("ApplySync", "CN=ops", {"plan_id": plan.plan_id})
    assert change.after["refused"] == "0"


def test_the_newest_changes_stay_and_take_the_keys_of_the_oldest() -> None:
    memory = Memory()
    for number in range(AUDIT_PLACES + 5):
        memory = memory.with_change("UpdateRules", by=f"{number}", peer="", at_ms=number, before={}, after={})
    records = memory.records()
    assert len(records) == AUDIT_PLACES
    assert RecordKey(StoredKind.AUDIT, "004") in records
    again = recall({key: decode_value(key, encode_value(value)) for key, value in records.items()})
    assert again.changes == memory.changes
    assert [again.changes[0].by, again.changes[-1].by] == ["5", f"{AUDIT_PLACES + 4}"]


async def test_a_change_does_not_stop_what_is_gone_from_the_source(flow: ConfigSyncRig) -> None:
    await flow.refresh()
    await flow.source.delete_topics(["orders-eu"])
    await flow.refresh()
    view = await flow.commands.update_rules([change(SET, "topics", "")], dry_run=True)
    assert view.stopped == ("orders",)
