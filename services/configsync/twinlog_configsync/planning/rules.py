"""The compiled rules of one flow about topics, configs and ACLs. Values only."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from twinlog.model import Flow
from twinlog.policy.expected_offsets import OffsetsRule
from twinlog.selection import TopicSelector
from twinlog_configsync.access.acl_rules import AclRules
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.topic_plan import DeleteRules, TopicRules


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRules:
    flow: Flow
    rank: int = 0
    """The place of its source in `clusters`."""
    copies_back: Callable[[str], "FlowRules | None"] = lambda _topic: None
    """Returns the rules of the flow that copies the copy of a source topic back to that topic."""
    selector: TopicSelector
    named_topics: frozenset[str]
    """Names that `topics` contains literally: they are requested even if the source does not list them (no
    right to describe)."""
    topics: TopicRules
    deletes: DeleteRules
    acls: AclRules
    intervals_seconds: Mapping[Scope, float]
    """What is synced, and how often."""
    refresh_enabled: bool
    """False: topics are looked for once, at the start."""
    automatic: bool
    """False: changes are planned and wait for `twinlog apply`."""
    offsets: OffsetsRule
    """Which offsets the source service should give the copies."""
    routes_records: bool = False
    """Whether records of some topics go to others than their copies."""
    exactly_once: bool
    """Whether the source service copies in transactions."""

    def leads(self, topic: str) -> bool:
        """Whether the copy of a topic gets the configs and ACLs of its source. Of a topic that is copied both
        ways only one side decides: two would change each other's for ever."""
        back = self.copies_back(topic)
        return back is None or self.rank < back.rank or Scope.CONFIGS not in back.intervals_seconds
