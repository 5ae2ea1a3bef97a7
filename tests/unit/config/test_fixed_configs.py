"""`twinlog.sync.topic.configs.fixed`: rules by topic, the first one counts."""

import pytest

from twinlog.config.flow.settings import FixedConfig, fixed_configs, parse_fixed_configs
from twinlog.errors import ConfigError


def test_a_rule_is_a_topic_and_its_settings() -> None:
    rules = parse_fixed_configs(
        " orders.* retention.ms=1 cleanup.policy=compact,delete ; audit retention.ms=-1;; .* retention.ms=9 "
    )
    assert fixed_configs(rules, "orders-eu") == {
        "retention.ms": FixedConfig(value="1", pattern="orders.*"),
        "cleanup.policy": FixedConfig(value="compact,delete", pattern="orders.*"),
    }
    assert fixed_configs(rules, "audit") == {"retention.ms": FixedConfig(value="-1", pattern="audit")}
    assert fixed_configs(rules, "my-orders") == {"retention.ms": FixedConfig(value="9", pattern=".*")}
    assert parse_fixed_configs("") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("orders", "has no setting=value"),
        ("orders retention.ms", "is not setting=value"),
        ("orders retention.ms = 1", "is not setting=value"),
        ("orders retention.ms=1 retention.ms=2", "says retention.ms twice"),
        ("orders min.insync.replicas=two", "is not a whole number"),
    ],
)
def test_a_rule_that_says_nothing_clear_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_fixed_configs(text)


def test_a_pattern_that_does_not_compile_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a valid regular expression"):
        parse_fixed_configs("(orders retention.ms=1")
