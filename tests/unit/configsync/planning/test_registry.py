"""The registry's state machine, a test per invariant and per change of the world."""

from dataclasses import replace

import pytest

from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError
from twinlog.kafka.ports import ConfigEntry, ConfigSource, TopicDescription
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, TopicLimits, TopicState
from twinlog_configsync.model.actions import Skip
from twinlog_configsync.model.observation import Observation, TargetCluster, TopicPair
from twinlog_configsync.model.reasons import SyncReason
from twinlog_configsync.planning.registry import FORGET_AFTER_MS, Blocker, fold

ABSENT = FatalKafkaError("no such topic", reason="TOPIC_UNKNOWN", code=3)
HIDDEN = FatalKafkaError("no right to see orders", reason="TOPIC_UNAUTHORIZED", code=29)
AWAY = TransientKafkaError("no answer in time", reason="KAFKA_TIMEOUT", code=7)


def topic(name: str, *, topic_id: str = "id-1", partitions: int = 3) -> TopicDescription:
    return TopicDescription(
        name=name, topic_id=topic_id, partition_count=partitions, replication_factor=1, internal=False
    )


def seen(
    source: TopicDescription | KafkaError,
    target: TopicDescription | KafkaError,
    *,
    source_configs: tuple[ConfigEntry, ...] | KafkaError = (),
    target_configs: tuple[ConfigEntry, ...] | KafkaError = (),
) -> Observation:
    pair = TopicPair(
        source_topic="orders",
        target_topic="A.orders",
        source=source,
        target=target,
        source_configs=source_configs,
        target_configs=target_configs,
    )
    return Observation(pairs={"orders": pair}, target_cluster=TargetCluster(broker_count=1))


def after(
    known: ReplicatedTopic | None,
    observation: Observation,
    *,
    blocker: Blocker | None = None,
    settled: bool = True,
    now_ms: int = 1_000,
) -> ReplicatedTopic | None:
    previous = {} if known is None else {"orders": known}
    blockers = {} if blocker is None else {"orders": blocker}
    return fold(
        previous, observation, blockers, created_after_start=lambda _name: settled, now_ms=now_ms
    ).get("orders")


def ready(**changes: object) -> ReplicatedTopic:
    entry = ReplicatedTopic(
        source_topic="orders",
        target_topic="A.orders",
        partition_count=3,
        target_partition_count=3,
        source_topic_id="id-1",
        target_topic_id="t-1",
        state=TopicState.READY,
    )
    return replace(entry, **changes)  # type: ignore[arg-type]


BOTH = seen(topic("orders"), topic("A.orders", topic_id="t-1"))


def test_a_topic_on_both_sides_is_ready() -> None:
    assert after(None, BOTH, settled=False) == ready()


@pytest.mark.parametrize("settled", [False, True])
def test_created_after_start_says_whether_the_selection_had_been_complete_before(settled: bool) -> None:
    entry = after(None, BOTH, settled=settled)
    assert entry is not None
    assert entry.created_after_start is settled


def test_created_after_start_never_changes_again() -> None:
    assert after(ready(created_after_start=False), BOTH, settled=True) == ready(created_after_start=False)


def test_a_generation_a_source_topic_with_another_id_is_a_new_generation() -> None:
    entry = after(ready(), seen(topic("orders", topic_id="id-2"), topic("A.orders", topic_id="t-1")))
    assert entry == ready(source_topic_id="id-2", generation=2)


def test_a_generation_counts_on_after_a_deletion() -> None:
    gone = after(ready(), seen(ABSENT, topic("A.orders", topic_id="t-1")), now_ms=5_000)
    assert gone is not None
    assert (gone.state, gone.deleted_at_ms, gone.generation) == (TopicState.DELETED_AT_SOURCE, 5_000, 1)
    later = after(gone, seen(ABSENT, topic("A.orders", topic_id="t-1")), now_ms=9_000)
    assert later == gone
    back = after(later, seen(topic("orders", topic_id="id-2"), topic("A.orders", topic_id="t-1")))
    assert back == ready(source_topic_id="id-2", generation=2)


def test_a_generation_stays_when_the_broker_tells_no_ids() -> None:
    entry = after(ready(), seen(topic("orders", topic_id=""), topic("A.orders", topic_id="t-1")))
    assert entry == ready()


def test_b_the_target_count_is_the_targets_word_and_a_missing_growth_says_why() -> None:
    refusal = FatalKafkaError("too many partitions", reason="POLICY_VIOLATION")
    entry = after(
        ready(), seen(topic("orders", partitions=5), topic("A.orders", topic_id="t-1")), blocker=refusal
    )
    assert entry == ready(partition_count=5, reason="POLICY_VIOLATION", message="too many partitions")


def test_b_a_target_topic_that_vanished_has_no_partitions() -> None:
    entry = after(ready(), seen(topic("orders"), ABSENT), blocker=FatalKafkaError("no", reason="REFUSED"))
    assert entry is not None
    assert (entry.state, entry.target_partition_count, entry.target_topic_id) == (TopicState.WAITING, 0, "")
    assert (entry.reason, entry.message) == ("REFUSED", "no")


def test_c_a_source_that_times_out_changes_nothing() -> None:
    assert after(ready(), seen(AWAY, topic("A.orders", topic_id="t-1"))) == ready()


def test_c_a_topic_we_may_not_see_any_more_waits_and_keeps_what_is_known() -> None:
    entry = after(ready(), seen(HIDDEN, topic("A.orders", topic_id="t-1")))
    assert entry == ready(state=TopicState.WAITING, reason="TOPIC_UNAUTHORIZED", message=str(HIDDEN))


def test_c_a_target_that_times_out_keeps_the_topic_ready() -> None:
    assert after(ready(), seen(topic("orders"), AWAY)) == ready()


def test_d_a_topic_no_rule_selects_is_kept_unselected() -> None:
    nothing = Observation(target_cluster=TargetCluster(broker_count=1))
    assert after(ready(), nothing) == ready(selected=False)
    assert after(ready(selected=False), BOTH) == ready()


GONE = seen(ABSENT, ABSENT)


def test_d_a_gone_topic_that_left_the_rules_is_not_one_whose_name_would_be_copied_again() -> None:
    """Checkpoint processes of other files read that from the record."""
    gone = after(ready(), GONE, now_ms=5_000)
    assert gone is not None
    assert (gone.selected, gone.deleted_at_ms) == (False, 5_000)
    left = after(gone, Observation(target_cluster=TargetCluster(broker_count=1)))
    assert left == replace(gone, deleted_at_ms=None)


def test_d_a_topic_that_is_gone_from_both_sides_is_forgotten_after_a_month() -> None:
    gone = after(ready(generation=4), GONE, now_ms=1_000)
    assert gone is not None
    assert after(gone, GONE, now_ms=999 + FORGET_AFTER_MS) == gone
    assert after(gone, GONE, now_ms=1_000 + FORGET_AFTER_MS) is None
    back = fold({}, BOTH, {}, created_after_start=lambda _name: True, now_ms=9_000, forgotten_generation=4)[
        "orders"
    ]
    assert back.generation == 5, "it never falls"


def test_d_a_copy_that_is_left_and_a_topic_that_was_lost_are_not_forgotten() -> None:
    with_copy = after(ready(), seen(ABSENT, topic("A.orders", topic_id="t-1")), now_ms=0)
    assert with_copy is not None
    left = after(with_copy, seen(ABSENT, topic("A.orders", topic_id="t-1")), now_ms=2 * FORGET_AFTER_MS)
    assert left is not None
    lost = replace(with_copy, kept=str(SyncReason.SOURCE_LOST))
    assert after(lost, GONE, now_ms=2 * FORGET_AFTER_MS) is not None
    assert after(after(ready(), GONE, now_ms=0), seen(AWAY, ABSENT), now_ms=2 * FORGET_AFTER_MS) is not None


def test_a_name_without_a_topic_is_not_remembered() -> None:
    assert after(None, seen(ABSENT, ABSENT)) is None


def test_a_topic_that_was_left_out_of_the_plan_says_which_rule() -> None:
    skip = Skip(
        source_topic="orders",
        target_topic="A.orders",
        what="topic",
        rule="needs 3 brokers",
        reason=SyncReason.REPLICATION_FACTOR_UNSATISFIABLE,
    )
    entry = after(None, seen(topic("orders"), ABSENT), blocker=skip)
    assert entry is not None
    assert (entry.state, entry.reason, entry.message) == (
        TopicState.WAITING,
        SyncReason.REPLICATION_FACTOR_UNSATISFIABLE,
        "needs 3 brokers",
    )


def test_a_created_topic_that_does_not_show_yet_waits() -> None:
    entry = after(None, seen(topic("orders"), ABSENT))
    assert entry is not None
    assert (entry.state, entry.reason) == (TopicState.WAITING, SyncReason.TARGET_NOT_VISIBLE)


def test_limits_and_cleanup_policy_come_from_the_configs() -> None:
    def entry_of(name: str, value: str) -> ConfigEntry:
        return ConfigEntry(name=name, value=value, source=ConfigSource.TOPIC)

    entry = after(
        None,
        seen(
            topic("orders"),
            topic("A.orders", topic_id="t-1"),
            source_configs=(entry_of("cleanup.policy", "compact"),),
            target_configs=(
                entry_of("max.message.bytes", "2097152"),
                entry_of("segment.bytes", "1000000"),
                entry_of("compression.type", "zstd"),
                entry_of("message.timestamp.type", "LogAppendTime"),
            ),
        ),
    )
    assert entry is not None
    assert entry.source_cleanup_policy == "compact"
    assert entry.limits == TopicLimits(
        max_message_bytes=1_000_000, compression_type="zstd", timestamp_type="LogAppendTime"
    )
    unreadable = seen(
        topic("orders"),
        topic("A.orders", topic_id="t-1"),
        source_configs=AWAY,
        target_configs=AWAY,
    )
    assert after(entry, unreadable) == entry
