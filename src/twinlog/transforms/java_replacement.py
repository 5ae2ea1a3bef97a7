r"""The right side of Java's `Matcher.replaceFirst`: `$1`, `${name}`, and `\` before a character that stands
for itself."""

import re
from dataclasses import dataclass

from twinlog.errors import ConfigError

_NAME = re.compile(r"\{([a-zA-Z][a-zA-Z0-9]*)\}")


@dataclass(frozen=True, slots=True)
class Replacement:
    """Text and groups, from left to right; a group is its number or its name."""

    parts: tuple[tuple[str, int | str | None], ...]
    """(text, the group after it; None = no group)."""

    def of(self, found: re.Match[str]) -> str:
        """A group that took no part is empty, as in Java."""
        return "".join(text + ("" if group is None else found[group] or "") for text, group in self.parts)


def parse_replacement(text: str, pattern: re.Pattern[str]) -> Replacement:
    """Raises ConfigError where Java would fail at the first record: an unknown group, a `$` or a backslash
    with nothing behind it."""
    parts: list[tuple[str, int | str | None]] = []
    literal = ""
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\":
            if position == len(text):
                raise ConfigError("ends with a backslash")
            literal += text[position]
            position += 1
        elif character == "$":
            group, position = _group(text, position, pattern)
            parts.append((literal, group))
            literal = ""
        else:
            literal += character
    return Replacement((*parts, (literal, None)))


def _group(text: str, position: int, pattern: re.Pattern[str]) -> tuple[int | str, int]:
    """The group that a `$` before `position` names, and the position behind it."""
    named = _NAME.match(text, position)
    if named:
        if named[1] not in pattern.groupindex:
            raise ConfigError(f"names a group {named[1]!r}, which the pattern lacks")
        return named[1], named.end()
    if position == len(text) or text[position] not in "0123456789":
        raise ConfigError("has a $ without the number or {name} of a group; write \\$ for a dollar sign")
    number = int(text[position])
    position += 1
    if number > pattern.groups:
        raise ConfigError(f"names the group ${number}, and the pattern has {pattern.groups}")
    # Java takes one more digit as long as the pattern has a group of that number.
    while position < len(text) and text[position] in "0123456789":
        longer = number * 10 + int(text[position])
        if longer > pattern.groups:
            break
        number = longer
        position += 1
    return number, position
