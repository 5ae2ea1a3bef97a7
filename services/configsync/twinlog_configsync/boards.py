"""What watchers see, of all flows."""

from dataclasses import dataclass

from twinlog_configsync.rules_board import RulesBoard
from twinlog_configsync.topic_board import TopicBoard


@dataclass(frozen=True, slots=True, kw_only=True)
class Boards:
    topics: TopicBoard
    rules: RulesBoard
