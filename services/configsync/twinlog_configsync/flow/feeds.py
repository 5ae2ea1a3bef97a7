"""The feeds of all flows for watchers."""

from dataclasses import dataclass

from twinlog_configsync.flow.rules_feed import RulesBoard
from twinlog_configsync.flow.topic_feed import TopicBoard


@dataclass(frozen=True, slots=True, kw_only=True)
class Boards:
    topics: TopicBoard
    rules: RulesBoard
