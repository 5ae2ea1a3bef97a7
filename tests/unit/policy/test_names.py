"""Names of remote and internal topics against MM2's own answers."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.errors import ConfigError
from twinlog.policy import (
    DEFAULT_POLICY_CLASS,
    IDENTITY_POLICY_CLASS,
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    policy_from_config,
)

Golden = Callable[[str], list[dict[str, Any]]]
DEFAULT = DefaultReplicationPolicy()


def test_every_answer_is_mm2s(golden: Golden) -> None:
    for vector in golden("policies"):
        policy = policy_from_config(vector["config"])
        assert policy.offset_syncs_topic("B") == vector["offset_syncs"], vector["config"]
        assert policy.checkpoints_topic("A") == vector["checkpoints"], vector["config"]
        assert policy.heartbeats_topic() == vector["heartbeats"], vector["config"]
        for expected in vector["topics"]:
            topic = expected["topic"]
            answers = {
                "topic": topic,
                "remote": policy.format_remote_topic("A", topic),
                "source": policy.topic_source(topic),
                "upstream": policy.upstream_topic(topic),
                "original": policy.original_topic(topic),
                "heartbeats": policy.is_heartbeats_topic(topic),
                "checkpoints": policy.is_checkpoints_topic(topic),
                "mm2_internal": policy.is_mm2_internal_topic(topic),
                "internal": policy.is_internal_topic(topic),
            }
            assert answers == expected, (vector["config"], topic)


def test_unknown_policy_class_names_the_two_that_exist() -> None:
    with pytest.raises(ConfigError) as caught:
        policy_from_config({"replication.policy.class": "com.example.Mine"})
    message = str(caught.value)
    assert "replication.policy.class" in message
    assert "com.example.Mine" in message
    assert DEFAULT_POLICY_CLASS in message
    assert IDENTITY_POLICY_CLASS in message


@pytest.mark.parametrize("separator", ["", "/", " ", "a b", "é"])
def test_separator_that_no_topic_name_may_hold_is_refused(separator: str) -> None:
    with pytest.raises(ConfigError, match=r"replication\.policy\.separator"):
        policy_from_config({"replication.policy.separator": separator})


def test_with_an_empty_separator_only_the_own_heartbeats_are_known_as_heartbeats() -> None:
    policy = IdentityReplicationPolicy(separator="", internal_separator="", source_cluster_alias="east")
    assert policy.is_heartbeats_topic("heartbeats")
    for topic in ("eastheartbeats", "east.heartbeats", "westeastheartbeats"):
        assert not policy.is_heartbeats_topic(topic)
        assert policy.topic_source(topic) is None
        assert policy.upstream_topic(topic) is None


def test_internal_separator_switch_is_true_or_false() -> None:
    key = "replication.policy.internal.topic.separator.enabled"
    with pytest.raises(ConfigError, match="expected true or false, got 'maybe'"):
        policy_from_config({key: "maybe"})
    assert policy_from_config({key: "FALSE"}) == DEFAULT


_NAMES = st.text(alphabet="ab._-", min_size=1, max_size=12)


@given(alias=st.text(alphabet="ab", min_size=1, max_size=3), topic=_NAMES, separator=_NAMES)
def test_a_remote_name_leads_back(alias: str, topic: str, separator: str) -> None:
    policy = DefaultReplicationPolicy(separator=separator)
    remote = policy.format_remote_topic(alias, topic)
    source = policy.topic_source(remote)
    if separator not in f"{alias}{separator}"[:-1] and topic.replace(separator, "") and source == alias:
        assert policy.upstream_topic(remote) == topic
    if source is not None:
        upstream = policy.upstream_topic(remote)
        assert upstream is not None
        assert policy.format_remote_topic(source, upstream) == remote
