"""Rules that are changed while a flow runs: on top of the file, with the same checks. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

from twinlog.config.keys.spec import ValueType
from twinlog.config.keys.table import BY_NAME
from twinlog.config.values.live import LIVE_KEYS
from twinlog.errors import ConfigError
from twinlog.filters import split_list
from twinlog.service.feeds.rules_record import RulesRecord

MAX_RULE_CHARACTERS = 1 << 16
"""The limit for one change, because all rules are stored in one record of the registry."""


class RuleOperation(StrEnum):
    SET = "set"
    ADD = "add"
    REMOVE = "remove"
    RESET = "reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleChange:
    key: str
    operation: RuleOperation
    value: str = ""
    """The value to set, or the element to add or remove."""


def change_rules(
    changes: Iterable[RuleChange], changed: Mapping[str, str], *, file_values: Mapping[str, str]
) -> dict[str, str]:
    """The values that differ from the file after these changes, applied in order.

    Values are only checked for being lists. Raises ConfigError for a key that cannot be changed live, an
    element that is not in its list, and a list operation on a value that is not a list.
    """
    values = dict(changed)
    for change in changes:
        if change.operation is RuleOperation.RESET and change.key in values:
            # Also a key that is not live (something else wrote the record), so that it can be removed.
            del values[change.key]
            continue
        _require_live(change.key)
        if change.operation is RuleOperation.RESET:
            continue
        before = values.get(change.key, file_values.get(change.key, ""))
        values[change.key] = _changed(change, before)
        if values[change.key] == file_values.get(change.key):
            del values[change.key]
    return values


def is_list(key: str) -> bool:
    return BY_NAME[key].type is ValueType.LIST


def _require_live(key: str) -> None:
    if key not in LIVE_KEYS:
        raise ConfigError(
            f"{key}: cannot be changed while a flow runs{_meant(key)}; `twinlog rules get` lists what can be",
            metadata={"key": key},
        )


def _meant(key: str) -> str:
    nearest = get_close_matches(key, LIVE_KEYS, n=1)
    return f" (did you mean {nearest[0]}?)" if nearest else ""


def _changed(change: RuleChange, before: str) -> str:
    value = change.value.strip()
    if len(value) > MAX_RULE_CHARACTERS:
        raise ConfigError(
            f"{change.key}: has {len(value)} characters, at most {MAX_RULE_CHARACTERS} are allowed",
            metadata={"key": change.key},
        )
    if change.operation is RuleOperation.SET:
        return ", ".join(split_list(change.key, value)) if is_list(change.key) else value
    if not is_list(change.key):
        raise ConfigError(
            f"{change.key}: is not a list: use `set`",
            metadata={"key": change.key},
        )
    elements = dict.fromkeys(split_list(change.key, before))
    for element in split_list(change.key, value):
        if change.operation is RuleOperation.ADD:
            elements[element] = None
        elif element in elements:
            del elements[element]
        else:
            raise ConfigError(
                f"{change.key}: {element!r} is not in the list ({before})", metadata={"key": change.key}
            )
    return ", ".join(elements)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleView:
    key: str
    value: str
    """The value in force."""
    file_value: str
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesView:
    """Every rule of a flow that can be changed while it runs."""

    revision: int
    updated_at_ms: int | None
    rules: tuple[RuleView, ...]
    problem: str = ""
    """Why changed rules are not in force."""


def view_rules(record: RulesRecord | None, *, file_values: Mapping[str, str], problem: str) -> RulesView:
    changed = {} if record is None else record.values
    keys = sorted({*LIVE_KEYS, *changed})
    return RulesView(
        revision=0 if record is None else record.revision,
        updated_at_ms=None if record is None else record.updated_at_ms,
        rules=tuple(
            RuleView(
                key=key,
                value=changed.get(key, file_values.get(key, "")),
                file_value=file_values.get(key, ""),
                changed=key in changed,
            )
            for key in keys
        ),
        problem=problem,
    )
