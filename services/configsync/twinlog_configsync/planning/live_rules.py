"""Rules that are changed while a flow runs: on top of the file, with the same checks. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum

from twinlog.config.keys.spec import ValueType
from twinlog.config.keys.table import BY_NAME
from twinlog.config.values.live import LIVE_KEYS
from twinlog.errors import ConfigError
from twinlog.filters import split_list
from twinlog.service.feeds.rules_record import NO_RULES, RuleOrigin, RulesRecord

MAX_RULE_CHARACTERS = 1 << 16
"""The limit for one change, because all rules are stored in one record of the registry."""
_DECIDES_OFFSETS = "twinlog.transform.", "transforms", "twinlog.offsets"
_IN_THE_FILE = (
    "; in the file it holds from the next start on: a copy that has the source's offsets, and may not keep"
    " them, gets its own then, for good (`twinlog preflight` names the topics)"
)


class RuleOperation(StrEnum):
    SET = "set"
    ADD = "add"
    REMOVE = "remove"
    RESET = "reset"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleChange:
    key: str
    operation: RuleOperation
    value: str = ""
    """The value to set, or the element to add or remove."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRules:
    """What the file says of the keys that may change while the flow runs."""

    values: Mapping[str, str]
    """As written, or the default."""
    written: Mapping[str, str]
    """Only those that the file has."""


def change_rules(
    changes: Iterable[RuleChange], before: RulesRecord, file: FileRules, *, by: str = "", now_ms: int = 0
) -> RulesRecord:
    """The rules after these changes, applied in order; `before` if nothing is different.

    Values are only checked for being lists. Raises ConfigError for a key that cannot be changed live, an
    element that is not in its list, a list operation on a value that is not a list, and a rule to restore
    that was not put aside.
    """
    values, aside, origins = dict(before.values), dict(before.aside), dict(before.origins)
    for change in changes:
        key, is_known = change.key, change.key in {*values, *aside}
        if change.operation is not RuleOperation.RESET or not is_known:
            # A key that is not live (something else wrote the record) can be removed.
            _require_live(key)
        restored = aside.pop(key, None)
        if change.operation is RuleOperation.RESET:
            values.pop(key, None)
        elif change.operation is not RuleOperation.RESTORE:
            values[key] = _changed(change, values.get(key, file.values.get(key, "")))
        elif restored is None:
            raise ConfigError(f"{key}: no rule of this key was put aside", key=key)
        else:
            values[key] = restored
        if values.get(key) == file.values.get(key):
            values.pop(key, None)
        origins.pop(key, None)
        if key in values:
            origins[key] = RuleOrigin(by=by, at_ms=now_ms, replaced=file.written.get(key))
    if (values, aside) == (before.values, before.aside):
        return before
    return RulesRecord(
        revision=before.revision + 1,
        updated_at_ms=now_ms,
        values=dict(sorted(values.items())),
        origins=origins,
        aside=aside,
    )


def is_list(key: str) -> bool:
    return BY_NAME[key].type is ValueType.LIST


def _require_live(key: str) -> None:
    if key not in LIVE_KEYS:
        later = _IN_THE_FILE if key.startswith(_DECIDES_OFFSETS) else ""
        raise ConfigError(
            f"{key}: cannot be changed while a flow runs{_meant(key)}; `twinlog rules get` lists what can be"
            f"{later}",
            key=key,
        )


def _meant(key: str) -> str:
    nearest = get_close_matches(key, LIVE_KEYS, n=1)
    return f" (did you mean {nearest[0]}?)" if nearest else ""


def _changed(change: RuleChange, before: str) -> str:
    value = change.value.strip()
    if len(value) > MAX_RULE_CHARACTERS:
        raise ConfigError(
            f"{change.key}: has {len(value)} characters, at most {MAX_RULE_CHARACTERS} are allowed",
            key=change.key,
        )
    if change.operation is RuleOperation.SET:
        return ", ".join(split_list(change.key, value)) if is_list(change.key) else value
    if not is_list(change.key):
        raise ConfigError(f"{change.key}: is not a list: use `set`", key=change.key)
    elements = dict.fromkeys(split_list(change.key, before))
    for element in split_list(change.key, value):
        if change.operation is RuleOperation.ADD:
            elements[element] = None
        elif element in elements:
            del elements[element]
        else:
            raise ConfigError(f"{change.key}: {element!r} is not in the list ({before})", key=change.key)
    return ", ".join(elements)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleView:
    key: str
    value: str
    """The value in force."""
    file_value: str
    changed: bool
    aside: str | None = None
    """The value of a rule that was put aside."""
    origin: RuleOrigin = field(default_factory=RuleOrigin)
    """Of the rule in force or put aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesView:
    """Every rule of a flow that can be changed while it runs."""

    revision: int
    updated_at_ms: int | None
    rules: tuple[RuleView, ...]
    problem: str = ""
    """Why changed rules are not in force."""
    stopped: tuple[str, ...] = ()
    """The source topics that were copied before a change, and are not by the changed rules."""


def view_rules(
    record: RulesRecord | None,
    *,
    file_values: Mapping[str, str],
    problem: str,
    stopped: tuple[str, ...] = (),
) -> RulesView:
    known = record or NO_RULES
    keys = sorted({*LIVE_KEYS, *known.values, *known.aside})
    return RulesView(
        revision=known.revision,
        updated_at_ms=None if record is None else record.updated_at_ms,
        rules=tuple(
            RuleView(
                key=key,
                value=known.values.get(key, file_values.get(key, "")),
                file_value=file_values.get(key, ""),
                changed=key in known.values,
                aside=known.aside.get(key),
                origin=known.origins.get(key, RuleOrigin()),
            )
            for key in keys
        ),
        problem=problem,
        stopped=stopped,
    )
