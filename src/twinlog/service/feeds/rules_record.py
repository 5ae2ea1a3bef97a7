"""The rules of a flow that were changed while it ran: the record `["rules"]` of
`mm2-configsync.<A>.internal`, which only configsync writes. Pure.

A rule replaces one value of the file. If the file of the flow's owner has another value by now, whoever wrote
it did not know the rule, or wanted something else: the owner puts the rule aside until somebody decides.
"""

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from twinlog.config.keys.spec import ValueType
from twinlog.config.keys.table import BY_NAME
from twinlog.errors import WireFormatError
from twinlog.model import Flow
from twinlog.wire.connect_json import loads
from twinlog.wire.stored_json import read_fields

RULES_VERSION = 1
"""Of the record's format. A field may be added without a new version: others leave it out."""
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOrigin:
    by: str = ""
    """Who set the rule; empty = unknown."""
    at_ms: int = 0
    """When, by the owner's wall clock; 0 = unknown."""
    replaced: str | None = None
    """The value that the file had then; None = the file did not have the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesRecord:
    revision: int
    """Increases by one with each change, from 1."""
    updated_at_ms: int
    values: Mapping[str, str]
    """The rules in force that differ from the file, with their values as written."""
    origins: Mapping[str, RuleOrigin] = field(default_factory=dict)
    """Of the rules in force and of those put aside, by key; none for a rule of an earlier release."""
    aside: Mapping[str, str] = field(default_factory=dict)
    """Rules that are not in force, because the owner's file has changed since."""


NO_RULES = RulesRecord(revision=0, updated_at_ms=0, values={})
"""Of a flow whose rules never were changed."""


def parsed_rules(raw: bytes) -> RulesRecord:
    """Raises WireFormatError."""
    return decode_rules(loads(raw, "the stored rules"))


def decode_rules(fields: Mapping[str, Any]) -> RulesRecord:
    """Raises WireFormatError for a record of another version (WIRE_VERSION), and for a damaged one."""
    try:
        version = fields["version"]
        if version != RULES_VERSION:
            raise WireFormatError(
                f"the stored rules are of version {version}, this Twinlog knows {RULES_VERSION}",
                reason="WIRE_VERSION",
            )
        return read_fields(RulesRecord, fields)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise WireFormatError(f"the stored rules are not a record of configsync: {error!r}") from error


def heeding(record: RulesRecord, written: Mapping[str, str], *, now_ms: int) -> RulesRecord:
    """The rules as the flow's owner leaves them that starts with a file in which these keys are `written`.

    A rule whose key has another value in the file than the one that it replaced is put aside, or gone if the
    file has the rule's value now. What a rule of an earlier release replaced is not known: the file's present
    value counts as that.
    """
    values, aside, origins = dict(record.values), dict(record.aside), dict(record.origins)
    for key, value in record.values.items():
        now, origin = written.get(key), origins.get(key)
        if origin is None:
            origins[key] = RuleOrigin(replaced=now)
        elif not _is_same(key, origin.replaced, now):
            del values[key]
            if _is_same(key, value, now):
                del origins[key]
            else:
                aside[key] = value
    if values == record.values:
        return record if origins == record.origins else replace(record, origins=origins)
    return RulesRecord(
        revision=record.revision + 1, updated_at_ms=now_ms, values=values, origins=origins, aside=aside
    )


def rule_words(
    flow: Flow, key: str, *, value: str, file_value: str, origin: RuleOrigin, is_aside: bool
) -> str:
    """A rule that is not the file's, as a sentence with the commands that end this."""
    by = f" by {origin.by}" if origin.by else ""
    at = f" of {_time(origin.at_ms)}" if origin.at_ms else ""
    named = shlex.quote(str(flow))
    undo = f"twinlog rules reset {named} {key}"
    if is_aside:
        return (
            f"{key}: the file has {_shown(file_value)}, and had {_shown(origin.replaced)} when a rule{at}{by}"
            f" replaced that by {_shown(value)}: the rule is put aside, not in force; to apply it again:"
            f" `twinlog rules restore {named} {key}`; to drop it: `{undo}`"
        )
    now = f"the file has {_shown(file_value)}, a rule{at}{by} replaces it by {_shown(value)}"
    return f"{key}: {now}; undo: `{undo}`"


def rules_told(
    flow: Flow, record: RulesRecord, file_values: Mapping[str, str], *, keys: Collection[str] | None = None
) -> list[str]:
    """Every rule that is not the file's, as a sentence: those in force, then those put aside.

    `file_values` has the values of the file, or the defaults. Only these `keys`; None = all.
    """
    return [
        rule_words(
            flow,
            key,
            value=value,
            file_value=file_values.get(key, ""),
            origin=record.origins.get(key, RuleOrigin()),
            is_aside=is_aside,
        )
        for is_aside, rules in ((False, record.values), (True, record.aside))
        for key, value in sorted(rules.items())
        if keys is None or key in keys
    ]


def rules_noted(record: RulesRecord) -> dict[str, str]:
    """The rules as values of an audit record."""
    return {**record.values, **{f"{key} (put aside)": value for key, value in record.aside.items()}}


def _is_same(key: str, was: str | None, now: str | None) -> bool:
    """Whether two values of the file mean the same. A default that another release changed is no change of
    the file."""
    return was == now or _meaning(key, was) == _meaning(key, now)


def _meaning(key: str, value: str | None) -> object:
    spec = BY_NAME.get(key)
    text = value if value is not None else (spec.default if spec is not None else None) or ""
    if spec is not None and spec.type is ValueType.LIST:
        return {element.strip() for element in text.split(",")}
    return text.strip()


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _shown(value: str | None) -> str:
    if not value:
        return "nothing"
    more = "…" if len(value) > _SHOWN_CHARACTERS else ""
    return f"'{value[:_SHOWN_CHARACTERS]}{more}'"
