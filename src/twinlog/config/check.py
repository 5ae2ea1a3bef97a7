"""Checks whether every key of a file has a meaning at its place; other modules decide the meaning.

The place of a key: `A->B.<key>` (a flow), `A.<key>` (a cluster) or the top level.
"""

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from twinlog.config.keys.client import (
    CLUSTER_CLIENT_KEYS,
    EFFECTIVE_BY_CLIENT,
    KEYS_BY_CLIENT,
    NO_EFFECT_REASONS,
    REFUSED_KEYS,
    SECURITY_KEYS,
    is_secret,
)
from twinlog.config.keys.spec import KeyScope, KeySpec, expected, java_boolean, parse_value
from twinlog.config.keys.table import BY_ANY_NAME, SPARK_CONF_PREFIX
from twinlog.config.values.precedence import Settings
from twinlog.config.values.reader import ConfigFindings, tell_reading
from twinlog.model import ClusterAlias
from twinlog.properties import Property

_AT_TOP = frozenset((KeyScope.TOP, KeyScope.FLOW, KeyScope.TARGET_OR_TOP))
_AT_FLOW = frozenset((KeyScope.FLOW, KeyScope.FLOW_ONLY))
_AT_CLUSTER = frozenset((KeyScope.TARGET, KeyScope.TARGET_OR_TOP))

_OPEN_PREFIXES = (
    *("config.providers.", "replication.policy.", SPARK_CONF_PREFIX),
    *("transforms.", "predicates."),
)
"""Names below these prefixes belong to other packages, or are judged by what reads them."""
_ENDS = ("source.cluster.", "target.cluster.")
_POSITIONS_TOPIC_PREFIX = "offset.storage."
_TOPIC_SETTING_PREFIXES = ("config.storage.", "status.storage.")
_NOT_FOR_THIS_CLIENT = "Twinlog's clients have no such setting"
_NAMED_BY_CLASS = (
    "MirrorMaker 2 names its connectors by their class; A->B.name is for positions of a Connect cluster"
)
_CONNECTS_OWN_TOPICS = "settings of Connect's own topics"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """What is known about a key at its place. At most one text is set; none = the key simply has its
    effect."""

    spec: KeySpec | None = None
    """The row of the table, if the key's value can be checked."""
    no_effect: str = ""
    """The key is known, and this is why it has no effect."""
    instead: str = ""
    """The key is known at another place: this one."""
    remark: str = ""
    """The key works; this is worth knowing about it."""
    refused: str = ""
    """Why the key cannot be followed and must not be ignored, unless its value is empty."""
    unknown: bool = False
    candidates: Collection[str] = ()
    """For an unknown key: similar known names."""
    is_cut_flow: bool = False
    """`A -> B.key`: a blank ends a key."""


_FINE = _Verdict()


def check_keys(
    raw: Settings, clusters: Collection[ClusterAlias], *, findings: ConfigFindings, strict: bool
) -> None:
    """Report keys that are not understood (with `strict` as problems), and check the values of the others."""
    for key, prop in raw.items():
        verdict = _verdict(raw, prop, clusters, findings)
        if verdict is None:
            continue
        if verdict.spec is not None and not verdict.no_effect:
            _check_value(verdict.spec, prop, findings)
        if verdict.refused:
            if prop.value.strip():
                findings.problem(key, verdict.refused, line=prop.line)
        elif verdict.no_effect:
            findings.info(key, f"has no effect: {verdict.no_effect}", line=prop.line)
        elif verdict.remark:
            findings.warning(key, verdict.remark, line=prop.line)
        elif verdict.unknown or verdict.instead:
            text = (
                f"has no effect here: {verdict.instead}"
                if verdict.instead
                else _unknown(key, verdict.candidates)
            )
            if strict:
                findings.problem(key, text, line=prop.line)
            else:
                findings.warning(key, text, line=prop.line, is_mistake=_is_mistake(key, verdict))


def _is_mistake(key: str, verdict: _Verdict) -> bool:
    """A key of a flow that is one letter away from a known one, or a flow with a blank in its name."""
    near = "->" in key and any(_is_one_letter_off(key, name) for name in verdict.candidates)
    return verdict.is_cut_flow or near


def _is_one_letter_off(key: str, other: str) -> bool:
    """By a letter more, less, or another one, or by two that changed places."""
    pairs = enumerate(zip(key, other, strict=False))
    at = next((at for at, (one, two) in pairs if one != two), min(len(key), len(other)))
    rest, others = key[at:], other[at:]
    swapped = len(rest) > 1 and rest[:2] == others[:2][::-1] and rest[2:] == others[2:]
    return key != other and (swapped or rest[1:] in (others, others[1:]) or rest == others[1:])


def _unknown(key: str, candidates: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(key, list(candidates), n=1, cutoff=0.75)
    return f"unknown key; did you mean {nearest[0]}?" if nearest else "unknown key"


def _check_value(spec: KeySpec, prop: Property, findings: ConfigFindings) -> None:
    """References are checked when they are used."""
    if "${" in prop.value:
        return
    try:
        parse_value(spec, prop.value)
    except ValueError:
        findings.wrong_value(prop, expected(spec), secret=is_secret(spec.name))
    else:
        tell_reading(spec, prop, findings)


def _verdict(
    raw: Settings, prop: Property, clusters: Collection[ClusterAlias], findings: ConfigFindings
) -> _Verdict | None:
    """None when the place of the key is wrong and was reported, or cannot be judged because `clusters` is
    wrong."""
    key = prop.key
    if prop.value.startswith("->") or key.endswith("->"):
        written = f"{key} {prop.value}".replace(" ", "").partition("=")[0]
        return _Verdict(instead=f"a blank ends a key: write {written} without blanks", is_cut_flow=True)
    aliases = sorted(clusters, key=len, reverse=True)
    if "->" in key and not key.startswith(_OPEN_PREFIXES):
        return _verdict_for_flow(raw, prop, aliases, findings)
    at_top = _at_top(key, clusters)
    if at_top == _FINE or (at_top.spec is not None and not at_top.no_effect):
        return at_top
    for alias in aliases:
        if key.startswith(f"{alias}."):
            return _at_cluster(alias, key[len(alias) + 1 :], _other(clusters, alias))
    return at_top


def _other(clusters: Collection[ClusterAlias], alias: ClusterAlias) -> ClusterAlias:
    """Another cluster, for examples in messages."""
    return next((other for other in clusters if other != alias), "S")


def _verdict_for_flow(
    raw: Settings, prop: Property, aliases: list[ClusterAlias], findings: ConfigFindings
) -> _Verdict | None:
    key = prop.key
    for source in aliases:
        for target in aliases:
            prefix = f"{source}->{target}."
            if key.startswith(prefix) and source != target:
                return _at_flow(source, target, key[len(prefix) :])
    if not aliases:
        return None
    source, _, rest = key.partition("->")
    target = next((alias for alias in aliases if rest.startswith(f"{alias}.")), _unknown_target(rest))
    strangers = [repr(alias) for alias in (source, target) if alias not in aliases]
    if strangers and not _may_be_enabled(raw, f"{source}->{target}.enabled"):
        # A line that was left over when a cluster was removed: MM2 reads only the flows of its clusters.
        are = "are" if len(strangers) > 1 else "is"
        return _Verdict(instead=f"{', '.join(strangers)} {are} not in clusters")
    if strangers:
        text = f"no such cluster: {', '.join(strangers)}; clusters: {', '.join(sorted(aliases))}"
    else:
        text = "a cluster is never replicated into itself"
    findings.problem(key, text, line=prop.line)
    return None


def _unknown_target(rest: str) -> ClusterAlias:
    """The alias at the beginning of `<alias>.<key>`; aliases may contain dots."""
    parts = rest.split(".")
    ends = (at for at in range(1, len(parts)) if ".".join(parts[at:]) in BY_ANY_NAME)
    return ".".join(parts[: next(ends, 1)])


def _may_be_enabled(raw: Settings, switch: str) -> bool:
    """A reference counts as true, because it is not resolved yet."""
    value = raw[switch].value.strip() if switch in raw else ""
    return java_boolean(value) or "${" in value


def _of_table(
    key: str, here: Collection[KeyScope], source: ClusterAlias, target: ClusterAlias
) -> _Verdict | None:
    """What the table says of a key at a place of these scopes; None for a key that it does not have."""
    spec = BY_ANY_NAME.get(key)
    if spec is None:
        return None
    if spec.scope in here:
        return _Verdict(spec=spec, no_effect=spec.no_effect)
    if spec.no_effect:
        return _Verdict(no_effect=spec.no_effect)
    if spec.scope is KeyScope.TOP:
        return _Verdict(instead="write it at the top level")
    place = target if spec.scope in _AT_CLUSTER else f"{source}->{target}"
    return _Verdict(instead=f"write it as {place}.{key}")


def _at_top(key: str, clusters: Collection[ClusterAlias]) -> _Verdict:
    if key in CLUSTER_CLIENT_KEYS:
        return _security_key(key)
    if key == "name":
        return _Verdict(no_effect=_NAMED_BY_CLASS)
    some = tuple(clusters)[-1] if clusters else "B"
    known = _of_table(key, _AT_TOP, _other(clusters, some), some)
    if known is not None:
        return known
    if key.startswith((*_OPEN_PREFIXES, _POSITIONS_TOPIC_PREFIX)):
        return _FINE
    if key.startswith(_TOPIC_SETTING_PREFIXES):
        return _Verdict(no_effect=_CONNECTS_OWN_TOPICS)
    if key.startswith(_ENDS):
        end, _, rest = key.partition(".cluster.")
        alias = some if end == "target" else _other(clusters, some)
        return _moved(alias, rest, "it is a connector's; ")
    first, _, rest = key.partition(".")
    if rest in KEYS_BY_CLIENT.get(first, ()):
        return _moved(some, key)
    elsewhere = _at_cluster(first, rest, some)
    if first not in clusters and rest and not (elsewhere.unknown or elsewhere.instead):
        return _Verdict(instead=f"{first!r} is not in clusters")
    names = [name for name, spec in BY_ANY_NAME.items() if spec.scope in _AT_TOP]
    return _Verdict(unknown=True, candidates=[*names, *SECURITY_KEYS])


def _moved(alias: ClusterAlias, key: str, why: str = "") -> _Verdict:
    """Where a client's key belongs; nowhere, if it has no effect there either."""
    there = _at_cluster(alias, key, alias)
    return there if there.no_effect else _Verdict(instead=f"{why}write it for a cluster, as {alias}.{key}")


def _at_cluster(alias: ClusterAlias, key: str, other: ClusterAlias) -> _Verdict:
    if key in CLUSTER_CLIENT_KEYS:
        return _security_key(key)
    client, _, name = key.partition(".")
    if client in KEYS_BY_CLIENT:
        if name in KEYS_BY_CLIENT[client]:
            return _client_key(client, name)
        return _Verdict(unknown=True, candidates=[f"{alias}.{client}.{n}" for n in KEYS_BY_CLIENT[client]])
    known = _of_table(key, _AT_CLUSTER, other, alias)
    if known is not None:
        return known
    if key.startswith(_POSITIONS_TOPIC_PREFIX):
        return _FINE
    if key.startswith(_TOPIC_SETTING_PREFIXES):
        return _Verdict(no_effect=_CONNECTS_OWN_TOPICS)
    clients = {client: _client_key(client, key) for client, names in KEYS_BY_CLIENT.items() if key in names}
    places = [f"{alias}.{client}.{key}" for client, told in clients.items() if not told.no_effect]
    if clients:
        nowhere = next(iter(clients.values()))
        return _Verdict(instead=f"write it for a client, as {' or '.join(places)}") if places else nowhere
    names = [name for name, spec in BY_ANY_NAME.items() if spec.scope in _AT_CLUSTER]
    return _Verdict(unknown=True, candidates=[f"{alias}.{name}" for name in (*names, *CLUSTER_CLIENT_KEYS)])


def _at_flow(source: ClusterAlias, target: ClusterAlias, key: str) -> _Verdict:
    if key in SECURITY_KEYS or key == "config.providers":
        return _Verdict(instead=f"write it as {source}.{key} or {target}.{key}")
    known = _of_table(key, _AT_FLOW, source, target)
    if known is not None:
        return known
    if key.startswith(_OPEN_PREFIXES):
        return _FINE
    names = [f"{source}->{target}.{name}" for name, spec in BY_ANY_NAME.items() if spec.scope in _AT_FLOW]
    return _client_key_at_flow(target, key) or _Verdict(unknown=True, candidates=names)


def _client_key_at_flow(target: ClusterAlias, key: str) -> _Verdict | None:
    """`consumer.…`, `source.consumer.…`, `producer.override.…`, `source.cluster.…`; None for others."""
    for side in ("source.cluster.", "target.cluster."):
        if key.startswith(side) and key[len(side) :] in CLUSTER_CLIENT_KEYS:
            return _security_key(key[len(side) :])
    for client, names in KEYS_BY_CLIENT.items():
        override, plain = f"{client}.override.", f"{client}."
        if key.startswith(override) and key[len(override) :] in names:
            if client == "producer":
                return _client_key(client, key[len(override) :])
            return _Verdict(no_effect=f"use source.{client}. or target.{client}.")
        for prefix in (plain, f"source.{plain}", f"target.{plain}"):
            name = key[len(prefix) :]
            if key.startswith(prefix) and name in names:
                verdict = _client_key(client, name)
                return (
                    _offset_syncs_only(target, name) if client == "producer" and verdict == _FINE else verdict
                )
    return None


def _offset_syncs_only(target: ClusterAlias, name: str) -> _Verdict:
    places = f"producer.override.{name} or {target}.producer.{name}"
    return _Verdict(remark=f"reaches only the producer of offset syncs; for records write {places}")


def _client_key(client: str, name: str) -> _Verdict:
    if name in EFFECTIVE_BY_CLIENT[client]:
        return _FINE
    if name in REFUSED_KEYS:
        return _Verdict(refused=REFUSED_KEYS[name])
    return _Verdict(no_effect=NO_EFFECT_REASONS.get(name, _NOT_FOR_THIS_CLIENT))


def _security_key(name: str) -> _Verdict:
    return _client_key("admin", name)
