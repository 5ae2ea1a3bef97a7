"""What preflight says of the offsets that new copies will have."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from twinlog.config import load
from twinlog.errors import FatalKafkaError
from twinlog.kafka.ports import ConfigEntry, ConfigSource, TopicDescription
from twinlog.preflight.adoption import check_offsets
from twinlog.preflight.facts import CheckedFlow, Finding, Severity, TopicFacts
from twinlog.preflight.report import PRESERVING, needed_rights
from twinlog.selection_configured import topic_selector

Flows = Callable[..., CheckedFlow]
Findings = Callable[..., list[Finding]]
"""The findings for a file's settings and topics."""
ABSENT = FatalKafkaError("no such topic", reason="TOPIC_UNKNOWN", code=3)


def described(name: str) -> TopicDescription:
    return TopicDescription(name=name, topic_id="id", partition_count=1, replication_factor=1, internal=False)


def new(name: str, *log_starts: int, policy: str = "delete") -> TopicFacts:
    return TopicFacts(
        name=name,
        target_name=f"A.{name}",
        source=described(name),
        source_configs=[ConfigEntry(name="cleanup.policy", value=policy, source=ConfigSource.TOPIC)],
        target=ABSENT,
        log_starts=log_starts,
    )


@pytest.fixture
def flow(tmp_path: Path) -> Flows:
    def of(properties: Mapping[str, str], *topics: TopicFacts) -> CheckedFlow:
        settings = {
            "clusters": "A, B",
            "A.bootstrap.servers": "a:9092",
            "B.bootstrap.servers": "b:9092",
            "A->B.enabled": "true",
            **properties,
        }
        file = tmp_path / "mm2.properties"
        file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
        (config,) = load(file, environ={}).enabled_flows
        return CheckedFlow(config=config, selector=topic_selector(config), topics=list(topics))

    return of


@pytest.fixture
def findings(flow: Flows) -> Findings:
    return lambda *given: list(check_offsets(flow(*given)))


def levels(found: Sequence[Finding]) -> list[Severity]:
    return [finding.level for finding in found]


def test_the_cost_of_filling_is_told_before_anything_is_written(findings: Findings) -> None:
    found = findings({"twinlog.offsets": "auto"}, new("orders", 0, 3_000_000), new("paid", 7_000_000))
    assert levels(found) == [Severity.OK]
    assert "2 new topics will have the source's offsets" in found[0].message
    assert "10000000 offsets" in found[0].message
    assert "8.2 MB" in found[0].message


def test_which_holes_are_filled_how_depends_on_a_right_that_nothing_else_needs(flow: Flows) -> None:
    facts = flow({"twinlog.offsets": "auto"}, new("orders", 0))
    facts = replace(facts, target_principal="User:mirror", target_operations=frozenset({"DESCRIBE"}))
    (found,) = check_offsets(facts)
    assert "holes of up to 128 offsets are filled by transactions" in found.message
    assert "where User:mirror has ALTER on the cluster B" in found.message
    (found,) = check_offsets(replace(facts, target_operations=frozenset({"ALTER"})))
    assert "holes of up to 10000 offsets are filled by markers at the leaders" in found.message
    unknown = replace(facts, target_operations=FatalKafkaError("no", reason="CLUSTER_UNAUTHORIZED"))
    assert "holes" not in next(check_offsets(unknown)).message


def test_compacted_topics_are_counted_and_are_no_reason_to_act(findings: Findings) -> None:
    found = findings(
        {"twinlog.offsets": "auto"},
        new("keyed", policy="compact"),
        new("both", policy="compact,delete"),
        new("orders", 0),
    )
    assert levels(found) == [Severity.OK] * 2
    assert "1 new topic will have" in found[0].message
    assert "2 new compacted topics will have offsets of their own" in found[1].message


def test_a_topic_that_costs_too_much_or_must_not_be_compacted_is_named(findings: Findings) -> None:
    limits = {"twinlog.offsets.fill.max": "100", "twinlog.offsets.fill.total": "150"}
    topics = [new("one", 101), new("two", 90), new("three", 70), new("keyed", policy="compact")]
    found = findings({"twinlog.offsets": "auto", **limits}, *topics)
    assert levels(found) == [Severity.WARNING] * 2 + [Severity.OK] * 2
    text = "\n".join(finding.message for finding in found)
    assert "one: its copy has offsets of its own: a partition starts at offset 101" in text
    assert "two: its copy has offsets of its own" in text, "three costs less and comes first"
    must = findings({"twinlog.offsets": "preserved", **limits}, *topics)
    assert levels(must)[:3] == [Severity.ERROR] * 3
    text = "\n".join(finding.message for finding in must)
    assert "keyed: its copy has offsets of its own: cleanup.policy is compact" in text


def test_deleting_what_was_filled_takes_a_right(flow: Flows) -> None:
    def deletes(facts: CheckedFlow) -> list[str]:
        return [right.purpose for right in needed_rights(facts) if right.operation == "DELETE"]

    assert deletes(flow({"twinlog.offsets": "auto"}, new("orders", 0, 7))) == [PRESERVING]
    assert deletes(flow({"twinlog.offsets": "auto"}, new("orders", 0))) == []
    assert deletes(flow({"twinlog.offsets": "translated"}, new("orders", 7))) == []


def test_without_transactions_nothing_is_preserved(findings: Findings) -> None:
    plain = {"B.exactly.once.source.support": "disabled"}
    assert levels(findings({"twinlog.offsets": "auto", **plain}, new("orders", 0))) == [Severity.OK]
    assert levels(findings({"twinlog.offsets": "preserved", **plain}, new("orders", 0))) == [Severity.ERROR]


def test_a_target_topic_that_somebody_has_written_before_the_flow_began_is_named(findings: Findings) -> None:
    topics = [
        replace(new("orders"), target=described("A.orders"), log_starts=(4,), target_ends=(3,)),
        replace(new("paid"), target=described("A.paid"), log_starts=(7,), target_ends=(0,)),
    ]
    found = findings({"twinlog.offsets": "auto"}, *topics)
    assert levels(found) == [Severity.WARNING, Severity.OK]
    assert "orders: its target topic A.orders on B has held records" in found[0].message
    assert "1 new topic will have the source's offsets; filling 7 offsets" in found[1].message, "it is empty"
    assert findings({"twinlog.offsets": "translated"}, *topics) == []


@pytest.mark.parametrize(
    "settings", [{}, {"twinlog.offsets": "translated"}, {"B.exactly.once.source.support": "disabled"}]
)
def test_records_under_the_name_of_a_copy_that_nobody_is_known_to_have_copied_are_told(
    findings: Findings, settings: dict[str, str]
) -> None:
    held = replace(new("orders"), target=described("A.orders"), held={0: 1200, 2: 3})
    (found,) = [each for each in findings(settings, held) if each.level is Severity.WARNING]
    told = (
        "orders: its target topic A.orders on B holds 1,203 records already in partitions 0, 2, of which no"
    )
    assert told in found.message
    assert "only if nobody needs the records of A.orders on B, delete it" in found.remedy
    assert "`twinlog foreign`" in found.remedy
    assert findings({**settings, "twinlog.start.group": "replicator"}, held) == []


@pytest.mark.parametrize(
    ("settings", "policy", "compares"),
    [
        ({}, "delete", True),
        ({}, "compact", False),
        ({"twinlog.offsets": "translated"}, "delete", False),
        ({"B.exactly.once.source.support": "disabled"}, "delete", False),
    ],
)
def test_only_a_copy_that_can_have_the_sources_offsets_is_said_to_take_what_is_there(
    findings: Findings, settings: dict[str, str], policy: str, compares: bool
) -> None:
    written = replace(new("orders", policy=policy), target=described("A.orders"), held={0: 3})
    found = "".join(each.message for each in findings(settings, written))
    assert ("unless these are the source's" in found) == compares
    assert "its copy has offsets of its own and is appended to them" in found


def test_a_topic_of_the_same_name_both_ways_keeps_what_is_there_whatever_its_offsets(flow: Flows) -> None:
    kept = {"replication.policy.class": "IdentityReplicationPolicy", "twinlog.offsets": "translated"}
    written = replace(new("orders"), target_name="orders", target=described("orders"), held={0: 3})
    there = flow({"A->B.topics": "or.*", **kept}, written)
    back = flow({"B->A.topics": "or.*", "B->A.enabled": "true", "A->B.enabled": "false", **kept})
    assert "unless these are the source's" not in "".join(each.message for each in check_offsets(there))
    assert "unless these are the source's" in next(check_offsets(there, [there, back])).message


def test_a_target_topic_that_another_flow_copies_is_never_to_be_deleted(flow: Flows) -> None:
    kept = {"replication.policy.class": "IdentityReplicationPolicy"}
    written = replace(
        new("orders"), target_name="orders", target=described("orders"), log_starts=(0,), target_ends=(3,)
    )
    there = flow({"A->B.topics": "other", **kept}, written)
    alone = {"B->A.enabled": "true", "A->B.enabled": "false"}
    other = flow({"B->A.topics": "other", **kept, **alone})
    back = flow({"B->A.topics": "or.*", **kept, **alone})
    (found, *_) = check_offsets(there, [there, other])
    assert "records of orders on B, delete it before" in (found.remedy or ""), "the cluster is named"
    (found, *_) = check_offsets(there, [there, back])
    assert "delete" not in (found.remedy or "")
    assert "keep orders on B: B->A copies it" in (found.remedy or "")


def test_nothing_is_said_of_copies_that_exist_or_are_configured_translated(findings: Findings) -> None:
    there = TopicFacts(name="old", target_name="A.old", source=described("old"), target=described("A.old"))
    assert findings({"twinlog.offsets": "auto"}, there) == []
    assert findings({"twinlog.offsets": "translated"}, new("orders", 5)) == []
