"""The rules in force, for commands that ask no service: never the file's in silence."""

import json
from pathlib import Path

import pytest

from twinlog.config import Configuration, load
from twinlog.errors import FatalKafkaError, StateError, TransientKafkaError
from twinlog.model import Flow, TopicPartition
from twinlog.service.feeds.rules import flow_in_force
from twinlog.service.feeds.rules_record import RuleOrigin, RulesRecord, heeding
from twinlog.testing.fakes.cluster import Call, FakeCluster

FLOW = Flow("A", "B")
TOPIC = "mm2-configsync.A.internal"


@pytest.fixture
def target() -> FakeCluster:
    cluster = FakeCluster("B")
    cluster.add_topic(TOPIC, configs={"cleanup.policy": "compact"})
    return cluster


def configured(directory: Path, topics: str = "orders") -> Configuration:
    file = directory / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        f"A->B.enabled = true\nA->B.topics = {topics}\n"
    )
    return load(file, environ={})


async def store(target: FakeCluster, **changes: object) -> None:
    document = {"version": 1, "revision": 3, "updated_at_ms": 1, "values": {"topics": "txt"}, **changes}
    async with target.writer() as writer:
        value = json.dumps(document).encode()
        await writer.append(TopicPartition(TOPIC, 0), key=b'["rules"]', value=value)


async def test_the_stored_rules_are_in_force_and_are_named(tmp_path: Path, target: FakeCluster) -> None:
    await store(target, origins={"topics": {"by": "ann", "at_ms": 1795354779302, "replaced": "orders"}})
    found = await flow_in_force(configured(tmp_path), FLOW, target)
    assert found.config.configsync.topics.include == ("txt",)
    assert found.record.revision == 3
    [told] = found.told
    assert told == (
        "topics: the file has 'orders', a rule of 2026-11-22 13:39:39 UTC by ann replaces it by 'txt';"
        " undo: `twinlog rules reset 'A->B' topics`"
    )


async def test_a_flow_without_changed_rules_is_its_file(tmp_path: Path) -> None:
    found = await flow_in_force(configured(tmp_path), FLOW, FakeCluster("B"))
    assert found.config == configured(tmp_path).flow(FLOW)
    assert (found.record.revision, found.told) == (0, ())


async def test_a_start_puts_aside_what_another_file_ruled(tmp_path: Path, target: FakeCluster) -> None:
    """Until then the rule is in force: whoever owns the flow runs with it."""
    await store(target, origins={"topics": {"replaced": "orders"}})
    changed = configured(tmp_path, topics="acct")
    assert (await flow_in_force(changed, FLOW, target)).config.configsync.topics.include == ("txt",)
    found = await flow_in_force(changed, FLOW, target, starting=True)
    assert found.config.configsync.topics.include == ("acct",)
    [told] = found.told
    assert told == (
        "topics: the file has 'acct', and had 'orders' when a rule replaced that by 'txt': the rule is put"
        " aside, not in force; to apply it again: `twinlog rules restore 'A->B' topics`; to drop"
        " it: `twinlog rules reset 'A->B' topics`"
    )


@pytest.mark.parametrize(
    ("changes", "reason", "remedy"),
    [
        ({"version": 2}, "WIRE_VERSION", "Run the newer release"),
        ({"values": []}, "WIRE_FORMAT", "Run the newer release"),
        ({"values": {"topics": "["}}, "INVALID_CONFIG", "`twinlog rules diff 'A->B'`"),
        ({"values": {"clusters": "C"}}, "INVALID_CONFIG", "`twinlog rules diff 'A->B'`"),
    ],
)
async def test_rules_that_cannot_be_used_are_an_error_with_a_remedy(
    tmp_path: Path, target: FakeCluster, changes: dict[str, object], reason: str, remedy: str
) -> None:
    await store(target, **changes)
    with pytest.raises(StateError, match=remedy) as raised:
        await flow_in_force(configured(tmp_path), FLOW, target)
    assert raised.value.reason == reason


async def test_rules_that_may_not_be_read_are_an_error_with_a_remedy(
    tmp_path: Path, target: FakeCluster
) -> None:
    await store(target)

    def refuse(call: Call) -> None:
        raise FatalKafkaError("no right", reason="TOPIC_UNAUTHORIZED", code=29)

    target.intercept("fetch", refuse)
    with pytest.raises(StateError, match=f"Allow this client to READ {TOPIC} on B") as raised:
        await flow_in_force(configured(tmp_path), FLOW, target)
    assert raised.value.reason == "TOPIC_UNAUTHORIZED"


async def test_a_target_that_is_away_is_no_flow_without_rules(tmp_path: Path, target: FakeCluster) -> None:
    target.take_away()
    with pytest.raises(TransientKafkaError):
        await flow_in_force(configured(tmp_path), FLOW, target)


def record(**changes: object) -> RulesRecord:
    fields = {"revision": 3, "updated_at_ms": 1, "values": {"topics": "txt"}, **changes}
    return RulesRecord(**fields)  # type: ignore[arg-type]


def replaced(value: str | None) -> dict[str, RuleOrigin]:
    return {"topics": RuleOrigin(by="ann", at_ms=5, replaced=value)}


@pytest.mark.parametrize(
    ("was", "written"),
    [
        ("orders", {"topics": "orders"}),
        ("a,b", {"topics": "a , b"}),
        ("a, b", {"topics": "b, a"}),
        (None, {}),
        (None, {"topics": ".*"}),
        (".*", {}),
    ],
)
def test_a_rule_stays_in_force_while_the_file_says_the_same(was: str | None, written: dict[str, str]) -> None:
    rules = record(origins=replaced(was))
    assert heeding(rules, written, now_ms=9) == rules


def test_a_rule_is_put_aside_once_the_file_says_something_else() -> None:
    heeded = heeding(record(origins=replaced("orders")), {"topics": "acct"}, now_ms=9)
    assert heeded == RulesRecord(
        revision=4, updated_at_ms=9, values={}, aside={"topics": "txt"}, origins=replaced("orders")
    )
    back = heeding(heeded, {"topics": "orders"}, now_ms=10)
    assert back == heeded, "it is restored by somebody, not by a file"


def test_a_rule_that_the_file_has_taken_over_is_gone() -> None:
    heeded = heeding(record(origins=replaced("orders")), {"topics": "txt"}, now_ms=9)
    assert (heeded.values, heeded.aside, heeded.origins) == ({}, {}, {})


def test_a_rule_of_an_earlier_release_replaced_what_the_file_says_at_the_first_start() -> None:
    first = heeding(record(), {"topics": "acct"}, now_ms=9)
    assert (first.revision, first.values) == (3, {"topics": "txt"})
    assert first.origins == {"topics": RuleOrigin(replaced="acct")}
    assert heeding(first, {"topics": "orders"}, now_ms=9).aside == {"topics": "txt"}
