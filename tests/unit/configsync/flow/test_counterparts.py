"""Names are decided once, and again when the rules change."""

from dataclasses import dataclass, field

from twinlog.model import Flow
from twinlog.policy import DefaultReplicationPolicy, IdentityReplicationPolicy, ReplicationPolicy
from twinlog.selection import TopicDecision, TopicSelector
from twinlog_configsync.flow.passes import Counterparts
from unit.name_lists import topic_lists


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingSelector(TopicSelector):
    """Notes which names it was asked about."""

    asked: list[str] = field(default_factory=list)

    def decide(self, topic: str) -> TopicDecision:
        self.asked.append(topic)
        return TopicSelector.decide(self, topic)


def selector(policy: ReplicationPolicy) -> CountingSelector:
    return CountingSelector(flow=Flow("A", "B"), policy=policy, topic_filter=topic_lists())


def test_a_name_is_decided_once() -> None:
    rules = selector(DefaultReplicationPolicy())
    first = Counterparts().of(["b", "__own", "a"], rules)
    assert first.selected == {"a": "A.a", "b": "A.b"}
    second = first.of(["b", "__own", "c"], rules)
    assert second.selected == {"b": "A.b", "c": "A.c"}
    assert first.selected == {"a": "A.a", "b": "A.b"}, "one pass does not change what another one reads"
    assert rules.asked == ["__own", "a", "b", "c"]


def test_a_name_that_is_gone_is_decided_again_when_it_is_back() -> None:
    counterparts, rules = Counterparts(), selector(DefaultReplicationPolicy())
    for names in (["a"], [], ["a"]):
        counterparts = counterparts.of(names, rules)
    assert rules.asked == ["a", "a"]


def test_other_rules_decide_about_every_name() -> None:
    counterparts = Counterparts().of(["a"], selector(DefaultReplicationPolicy()))
    assert counterparts.selected == {"a": "A.a"}
    assert counterparts.of(["a"], selector(IdentityReplicationPolicy())).selected == {"a": "a"}


def test_topics_that_came_through_a_cluster_by_their_names_are_kept_with_its_alias() -> None:
    rules = selector(DefaultReplicationPolicy())
    names = ["a", "B.orders", "A.orders", "C.orders", "B.heartbeats", "__own"]
    first = Counterparts().of(names, rules)
    assert first.cycles == {"A.orders": "A", "B.orders": "B"}
    assert first.of([*names, "B.bills"], rules).cycles == {**first.cycles, "B.bills": "B"}
    assert first.of(["B.orders"], rules).cycles == {"B.orders": "B"}
    assert first.of(names, selector(IdentityReplicationPolicy())).cycles == {}
