"""MM2's rules for topic configs, vector by vector."""

from dataclasses import replace

from twinlog.config.flow.settings import FixedConfig
from twinlog.filters.name_filters import PatternList
from twinlog.kafka.ports import ConfigChange, ConfigEntry, ConfigSource
from twinlog_configsync.model.actions import DeleteConfig, SetConfig, Skip
from twinlog_configsync.planning.config_rules import ConfigRules, change_of, creation_configs, plan_configs

EXCLUDE = PatternList("config.properties.exclude", (r"min\.insync\.replicas", "unclean.*"))
TARGET_DEFAULTS = ConfigRules(excluded_by=EXCLUDE.deciding_pattern)
SOURCE_DEFAULTS = ConfigRules(excluded_by=EXCLUDE.deciding_pattern, source_defaults=True)
NOTHING_EXCLUDED = ConfigRules(excluded_by=lambda _name: None)


def explicit(name: str, value: str) -> ConfigEntry:
    return ConfigEntry(name=name, value=value, source=ConfigSource.TOPIC)


def default(name: str, value: str) -> ConfigEntry:
    return ConfigEntry(name=name, value=value, source=ConfigSource.DEFAULT)


SOURCE = (
    explicit("retention.ms", "3600000"),
    default("segment.bytes", "1073741824"),
    explicit("min.insync.replicas", "2"),
    ConfigEntry(name="compression.type", value="zstd", source=ConfigSource.DYNAMIC_DEFAULT_BROKER),
    ConfigEntry(name="flush.ms", value="7", source=ConfigSource.DYNAMIC_BROKER),
    ConfigEntry(name="index.interval.bytes", value="9", source=ConfigSource.STATIC_BROKER),
    ConfigEntry(name="secret.thing", value=None, source=ConfigSource.TOPIC, sensitive=True),
    ConfigEntry(name="fixed.thing", value="1", source=ConfigSource.TOPIC, read_only=True),
)


def plan(
    target: tuple[ConfigEntry, ...], rules: ConfigRules = TARGET_DEFAULTS, **options: dict[str, str] | None
) -> list[str]:
    actions = plan_configs(
        "orders", "A.orders", source=SOURCE, target=target, rules=rules, replication_factor=3, **options
    )
    return [str(action) for action in actions]


def test_a_topic_is_created_with_explicit_and_dynamic_broker_values_only() -> None:
    assert creation_configs(SOURCE, TARGET_DEFAULTS, replication_factor=3) == {
        "retention.ms": "3600000",
        "compression.type": "zstd",
        "flush.ms": "7",
    }


def test_with_source_defaults_the_defaults_are_set_too() -> None:
    assert creation_configs(SOURCE, SOURCE_DEFAULTS, replication_factor=3) == {
        "retention.ms": "3600000",
        "compression.type": "zstd",
        "flush.ms": "7",
        "segment.bytes": "1073741824",
    }


def test_the_plan_says_what_it_does_and_by_which_rule() -> None:
    target = (
        default("retention.ms", "604800000"),
        explicit("segment.bytes", "1048576"),
        explicit("min.insync.replicas", "1"),
        explicit("compression.type", "zstd"),
        default("flush.ms", "7"),
        explicit("only.on.target", "x"),
    )
    assert plan(target) == [
        "SET A.orders flush.ms 7 → 7: DYNAMIC_BROKER_CONFIG on source",
        "SKIP A.orders index.interval.bytes: comes from the source broker's own file",
        r"SKIP A.orders min.insync.replicas: excluded by config.properties.exclude (min\.insync\.replicas)",
        "SET A.orders retention.ms 604800000 → 3600000: explicit on source",
        "DELETE A.orders segment.bytes 1048576 → default: default on source (use.defaults.from=target)",
    ]


def test_with_source_defaults_an_override_is_set_to_the_sources_default() -> None:
    target = (
        explicit("retention.ms", "3600000"),
        explicit("segment.bytes", "1048576"),
        explicit("compression.type", "zstd"),
        explicit("flush.ms", "7"),
    )
    assert [line for line in plan(target, SOURCE_DEFAULTS) if not line.startswith("SKIP")] == [
        "SET A.orders segment.bytes 1048576 → 1073741824: default on source (use.defaults.from=source)"
    ]


def test_a_second_apply_is_a_no_op() -> None:
    wanted = creation_configs(SOURCE, TARGET_DEFAULTS, replication_factor=3)
    target = tuple(explicit(name, value) for name, value in wanted.items())
    assert [line for line in plan(target) if not line.startswith("SKIP")] == []


def test_what_the_targets_kafka_does_not_know_is_left_out() -> None:
    rules = ConfigRules(excluded_by=lambda _name: None, known_on_target={"retention.ms"})
    source = (explicit("retention.ms", "1"), explicit("brand.new", "2"))
    assert creation_configs(source, rules, replication_factor=3) == {"retention.ms": "1"}
    actions = plan_configs("t", "A.t", source=source, target=(), rules=rules, replication_factor=3)
    assert [str(action) for action in actions] == [
        "SKIP A.t brand.new: the target's Kafka has no such property",
        "SET A.t retention.ms None → 1: explicit on source",
    ]


def test_min_isr_above_the_replication_factor_is_left_out_when_it_is_synced_at_all() -> None:
    source = (explicit("min.insync.replicas", "2"),)
    assert creation_configs(source, NOTHING_EXCLUDED, replication_factor=1) == {}
    assert creation_configs(source, NOTHING_EXCLUDED, replication_factor=2) == {"min.insync.replicas": "2"}


def test_changes_carry_the_actions_out() -> None:
    setting = SetConfig(
        source_topic="t", target_topic="A.t", name="retention.ms", before=None, value="1", rule="r"
    )
    deletion = DeleteConfig(source_topic="t", target_topic="A.t", name="retention.ms", before="1", rule="r")
    assert change_of(setting) == ConfigChange(name="retention.ms", value="1")
    assert change_of(deletion) == ConfigChange(name="retention.ms", value=None)


def test_a_property_that_is_not_included_stays_as_it_is_on_the_target() -> None:
    include = PatternList("twinlog.sync.topic.configs.include", ("compression.type", "min.*"))
    rules = replace(TARGET_DEFAULTS, included=include.matches)
    assert creation_configs(SOURCE, rules, replication_factor=3) == {"compression.type": "zstd"}
    there = (explicit("retention.ms", "5"), explicit("segment.bytes", "7"))
    said = plan(there, rules)
    for name in ("retention.ms", "segment.bytes"):
        assert f"SKIP A.orders {name}: not in twinlog.sync.topic.configs.include" in said


FIXED = replace(
    TARGET_DEFAULTS,
    fixed={
        "retention.ms": FixedConfig(value="7", pattern="orders"),
        "unclean.leader.election.enable": FixedConfig(value="true", pattern="ord.*"),
        "newer.than.source": FixedConfig(value="x", pattern="ord.*"),
    },
)


def test_a_fixed_property_is_set_whatever_the_source_and_the_exclusions_say() -> None:
    wanted = creation_configs(SOURCE, FIXED, replication_factor=3)
    assert wanted == {
        "retention.ms": "7",
        "unclean.leader.election.enable": "true",
        "newer.than.source": "x",
        "compression.type": "zstd",
        "flush.ms": "7",
    }


def test_a_fixed_property_is_brought_back_and_then_left_alone() -> None:
    there = tuple(
        explicit(name, value)
        for name, value in creation_configs(SOURCE, FIXED, replication_factor=3).items()
        if name != "retention.ms"
    )
    changed = [*there, explicit("retention.ms", "3600000")]
    actions = plan_configs(
        "orders",
        "A.orders",
        source=SOURCE,
        target=changed,
        rules=FIXED,
        replication_factor=3,
        last_set={"retention.ms": "7"},
    )
    changes = [each for each in actions if not isinstance(each, Skip)]
    assert [(each.name, each.drift) for each in changes] == [("retention.ms", True)]
    assert "fixed by twinlog.sync.topic.configs.fixed (orders)" in changes[0].rule
    settled = [*there, explicit("retention.ms", "7")]
    again = plan_configs(
        "orders", "A.orders", source=SOURCE, target=settled, rules=FIXED, replication_factor=3
    )
    assert [each for each in again if not isinstance(each, Skip)] == []


def test_what_is_fixed_no_longer_follows_the_source_again() -> None:
    actions = plan((explicit("retention.ms", "7"), explicit("compression.type", "zstd")), TARGET_DEFAULTS)
    assert any("retention.ms" in action and "3600000" in action for action in actions)


def test_a_fixed_property_that_the_target_could_not_work_with_is_refused() -> None:
    rules = replace(TARGET_DEFAULTS, fixed={"min.insync.replicas": FixedConfig(value="3", pattern="t")})
    assert "min.insync.replicas" not in creation_configs(SOURCE, rules, replication_factor=2)
    rules = replace(rules, known_on_target={"retention.ms"})
    assert creation_configs(SOURCE, rules, replication_factor=3) == {"retention.ms": "3600000"}
