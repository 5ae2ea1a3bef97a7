"""Values that Kafka accepts and nobody intends: with a comment, a blank or quotes, or an expression split at
a comma."""

from twinlog.config.keys.client import is_secret
from twinlog.config.keys.spec import split_list
from twinlog.config.problems import Findings
from twinlog.config.values.precedence import Settings

_PATTERN_LISTS = frozenset(
    {
        *("topics", "topics.exclude", "groups", "groups.exclude", "config.properties.exclude"),
        "twinlog.sync.topic.configs.include",
    }
)
_RAW_SWITCHES = frozenset(("enabled", "emit.heartbeats.enabled"))
"""Read a second time, untrimmed, when MM2 decides which flows exist."""
_QUOTES = ('"', "'")
"""No topic has one in its name."""


def check_values(raw: Settings, findings: Findings) -> None:
    for key, prop in raw.items():
        if is_secret(key):
            continue
        name = key.partition("->")[2].partition(".")[2] or key
        if " #" in prop.value:
            text = "' #…' is part of the value: a comment has to be on a line of its own"
            findings.warning(key, text, line=prop.line)
        if name in _RAW_SWITCHES and prop.value != prop.value.strip():
            text = "MM2 reads it as false, because of the blank after the value"
            findings.warning(key, text, line=prop.line)
        if name in _PATTERN_LISTS:
            for element in split_list(prop.value):
                if element.count("{") != element.count("}") or element.count("[") != element.count("]"):
                    text = f"{element!r} looks like half of an expression: a comma always separates elements"
                    findings.warning(key, text, line=prop.line)
                if element[:1] in _QUOTES or element[-1:] in _QUOTES:
                    text = f"the quotes are part of {element}: write it without"
                    findings.warning(key, text, line=prop.line, is_mistake="topics" in name)
