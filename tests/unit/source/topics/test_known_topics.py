"""Which topics are copied after a restart while configsync is down."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from twinlog.config import load
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import TIMEOUT, from_code, from_reason
from twinlog.kafka.ports import ConfigChange
from twinlog.model import TopicPartition
from twinlog.policy.internal_topics import configsync_topic
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.fakes.cluster_hooks import Call, Hook
from twinlog_source.config import source_flows
from twinlog_source.driver.state import FlowState
from twinlog_source.topics.known import KnownTopics
from twinlog_source.topics.stored_selection import StoredSelection
from twinlog_source.topics.wanted import CONFIGSYNC_PATIENCE_SECONDS, LOOK_AGAIN_SECONDS
from unit.source.flow_rig import FILE, FlowRig, OneFile, P

COPIED = [TopicPartition("orders", 0), TopicPartition("invoices", 0)]


def known_topics(target: FakeCluster, file: Path | None = None) -> KnownTopics:
    """The file selects orders alone; both topics have positions and copies."""
    source = FakeCluster("A")
    for partition in COPIED:
        source.add_topic(partition.topic)
        target.add_topic(f"A.{partition.topic}")
    text = FILE + "A->B.topics = orders\n"
    configuration = (
        load(Path("mm2.properties"), environ={}, files=OneFile(text))
        if file is None
        else load(file, environ={})
    )
    (flow,) = source_flows(configuration)
    selection = StoredSelection(configuration=configuration, flow=flow, target=target)
    return KnownTopics(flow=flow, source=source, target=target, selection=selection)


async def store_rules(target: FakeCluster, values: Mapping[str, str], *, version: int = 1) -> None:
    """As configsync stores them."""
    target.add_topic(configsync_topic("A"), 1, {"cleanup.policy": "compact"})
    value = json.dumps(
        {"version": version, "revision": 1, "updated_at_ms": 1, "values": dict(values)}
    ).encode()
    async with target.writer() as writer:
        await writer.append(TopicPartition(configsync_topic("A"), 0), key=b'["rules"]', value=value)


@pytest.mark.parametrize(
    ("values", "topics"),
    [
        ({}, {"orders"}),
        ({"topics": "orders, invoices"}, {"orders", "invoices"}),
        ({"topics": "invoices"}, {"invoices"}),
        ({"topics.exclude": "orders"}, set()),
    ],
)
async def test_the_changed_rules_that_configsync_has_stored_select_the_topics(
    values: Mapping[str, str], topics: set[str]
) -> None:
    target = FakeCluster("B")
    await store_rules(target, values)
    known = known_topics(target)
    await known.look(COPIED)
    assert set(known.topics) == topics


async def test_without_stored_rules_or_with_unusable_ones_the_file_selects_the_topics() -> None:
    target = FakeCluster("B")
    known = known_topics(target)
    await known.look(COPIED)
    assert set(known.topics) == {"orders"}
    await store_rules(target, {"topics": "invoices"}, version=2)
    again = KnownTopics(
        flow=known.flow,
        source=known.source,
        target=target,
        selection=StoredSelection(
            configuration=known.selection.configuration, flow=known.flow, target=target
        ),
    )
    await again.look(COPIED)
    assert set(again.topics) == {"orders"}


async def test_a_target_that_is_away_is_asked_again() -> None:
    target = FakeCluster("B")
    await store_rules(target, {"topics": "invoices"})
    known = known_topics(target)
    target.take_away()
    with pytest.raises(TransientKafkaError):
        await known.look(COPIED)
    target.bring_back()
    await known.look(COPIED)
    assert set(known.topics) == {"invoices"}


async def test_a_new_leader_that_shows_less_of_the_rules_for_a_moment_is_asked_again() -> None:
    target = FakeCluster("B")
    await store_rules(target, {"topics": "invoices"})
    known = known_topics(target)

    def show_nothing(call: Call) -> None:
        for name, value in {"records": [], "next_offset": 0, "high_watermark": 0}.items():
            object.__setattr__(call.result, name, value)

    undo = target.intercept("fetch", show_nothing, after=True)
    with pytest.raises(TransientKafkaError):
        await known.look(COPIED)
    undo()
    await known.look(COPIED)
    assert set(known.topics) == {"invoices"}


async def test_stored_rules_are_followed_once_the_secrets_of_the_file_can_be_read_again(
    tmp_path: Path,
) -> None:
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("password = planted\n")
    target = FakeCluster("B")
    await store_rules(target, {"topics": "invoices"})
    file = tmp_path / "mm2.properties"
    file.write_text(
        f"{FILE}A->B.topics = orders\n"
        "config.providers = file\n"
        "config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider\n"
        f"B.ssl.key.password = ${{file:{secrets}:password}}\n"
    )
    known = known_topics(target, file)
    known.selection.retry_seconds = 0.0
    secrets.rename(tmp_path / "away")
    await known.look(COPIED)
    assert set(known.topics) == {"orders"}
    (tmp_path / "away").rename(secrets)
    await known.look(COPIED)
    assert set(known.topics) == {"invoices"}


def unanswered(call: Call) -> None:
    """One broker with too much to do, and no other is asked."""
    raise from_reason(TIMEOUT, call.operation, alias="?")


def answers(error: KafkaError) -> Hook:
    """It is the answer about orders and its copy."""

    def answer(call: Call) -> None:
        for name in call.result:
            if name.endswith("orders"):
                call.result[name] = error

    return answer


@pytest.mark.parametrize("side", ["source", "target"])
async def test_topics_that_a_cluster_is_silent_about_stay(side: str) -> None:
    known = known_topics(FakeCluster("B"))
    await known.look(COPIED)
    before = dict(known.topics)
    cluster = known.source if side == "source" else known.target
    assert isinstance(cluster, FakeCluster)
    undo = cluster.intercept("describe_topics", unanswered)
    for _ in range(5):
        await known.look(COPIED)
        assert known.topics == before
    undo()
    await known.look(COPIED)
    assert known.topics == before


@pytest.mark.parametrize("side", ["source", "target"])
async def test_a_first_look_that_a_cluster_does_not_answer_fails(side: str) -> None:
    """The flow does not say that it has no topics."""
    known = known_topics(FakeCluster("B"))
    cluster = known.source if side == "source" else known.target
    assert isinstance(cluster, FakeCluster)
    undo = cluster.intercept("describe_topics", unanswered)
    with pytest.raises(TransientKafkaError):
        await known.look(COPIED)
    undo()
    await known.look(COPIED)
    assert set(known.topics) == {"orders"}


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize(
    "code", [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_REQUEST]
)
async def test_a_topic_stays_after_any_error_but_that_it_does_not_exist(side: str, code: int) -> None:
    target = FakeCluster("B")
    await store_rules(target, {"topics": "orders, invoices"})
    known = known_topics(target)
    await known.look(COPIED)
    before = known.topics["orders"]
    cluster = known.source if side == "source" else known.target
    assert isinstance(cluster, FakeCluster)
    cluster.intercept("describe_topics", answers(from_code(code, "describe topics", alias="?")), after=True)
    for _ in range(5):
        await known.look(COPIED)
        assert known.topics["orders"] == before
        assert set(known.topics) == {"orders", "invoices"}


@pytest.mark.parametrize("side", ["source", "target"])
async def test_a_topic_leaves_when_two_looks_in_a_row_say_that_it_does_not_exist(side: str) -> None:
    """One alone may be the answer of a broker that lags behind."""
    known = known_topics(FakeCluster("B"))
    await known.look(COPIED)
    cluster = known.source if side == "source" else known.target
    assert isinstance(cluster, FakeCluster)
    absent = answers(from_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "describe topics", alias="?"))
    for _ in range(3):
        undo = cluster.intercept("describe_topics", absent, after=True)
        await known.look(COPIED)
        assert set(known.topics) == {"orders"}
        undo()
        await known.look(COPIED)
        assert set(known.topics) == {"orders"}
    cluster.intercept("describe_topics", absent, after=True)
    await known.look(COPIED)
    await known.look(COPIED)
    assert known.topics == {}
    await known.look(COPIED)
    assert known.topics == {}


async def test_the_limits_of_a_copy_stay_when_its_configs_are_not_read() -> None:
    """Other limits would end the epoch of the whole flow."""
    target = FakeCluster("B")
    known = known_topics(target)
    await target.alter_topic_configs({"A.orders": [ConfigChange(name="max.message.bytes", value="5000")]})
    await known.look(COPIED)
    before = known.topics["orders"]
    assert before.target_max_message_bytes == 5000
    target.intercept(
        "describe_topic_configs", answers(from_reason(TIMEOUT, "describe configs", alias="B")), after=True
    )
    await known.look(COPIED)
    assert known.topics["orders"] == before


async def owner_without_configsync(rig: FlowRig) -> FlowState:
    """A new owner that copies by the stored positions."""
    first = await rig.owner()
    await first.journal.position(P, 9)
    state = await rig.process(has_configsync=False)
    await state.take_over(displaced=False)
    await state.refresh(owned=frozenset())
    rig.clock.advance(CONFIGSYNC_PATIENCE_SECONDS)
    await state.refresh(owned=frozenset())
    return state


@pytest.mark.parametrize("side", ["source", "target"])
async def test_an_epoch_goes_on_while_a_cluster_does_not_answer_and_configsync_is_down(
    rig: FlowRig, side: str
) -> None:
    state = await owner_without_configsync(rig)
    planned = state.table.plannable()
    assert planned == {P}
    rig.clock.advance(LOOK_AGAIN_SECONDS)
    cluster = rig.source if side == "source" else rig.target
    cluster.intercept("describe_topics", unanswered)
    assert not await state.plan_is_stale(planned)
    assert not await state.refresh(owned=planned)
    assert state.table.plannable() == planned


async def test_what_a_process_knew_of_topics_before_another_one_owned_the_flow_is_not_used(
    rig: FlowRig,
) -> None:
    state = await owner_without_configsync(rig)
    assert state.table.plannable() == {P}
    await rig.owner()
    rig.source.intercept("describe_topics", unanswered)
    await state.take_over(displaced=False)
    with pytest.raises(TransientKafkaError):
        await state.refresh(owned=frozenset())
