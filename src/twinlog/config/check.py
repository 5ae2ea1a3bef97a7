"""Keys that mean nothing where they stand: unknown, misplaced, without effect. And values that look like an
accident.

A key is read by its place: `A->B.<key>` (flow), `A.<key>` (cluster), or the top level.
"""

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from twinlog.config.client_keys import CLUSTER_CLIENT_KEYS, KEYS_BY_CLIENT, SECURITY_KEYS, is_secret
from twinlog.config.keys import BY_ANY_NAME
from twinlog.config.keys_twinlog import SPARK_CONF_PREFIX
from twinlog.config.precedence import Settings
from twinlog.config.problems import Findings
from twinlog.config.spec import Scope, split_list
from twinlog.model import ClusterAlias
from twinlog.properties import Property

_AT_TOP = frozenset((Scope.TOP, Scope.FLOW, Scope.TARGET_OR_TOP))
_AT_FLOW = frozenset((Scope.FLOW, Scope.FLOW_ONLY))
_AT_CLUSTER = frozenset((Scope.TARGET, Scope.TARGET_OR_TOP))

_OPEN_PREFIXES_AT_TOP = ("config.providers.", SPARK_CONF_PREFIX)
"""Prefixes below which every name is somebody else's."""
_PATTERN_LISTS = ("topics", "topics.exclude", "groups", "groups.exclude", "config.properties.exclude")
_TOPIC_SETTING_PREFIXES = ("offset.storage.", "config.storage.", "status.storage.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    known: bool
    no_effect: str = ""
    """Why a known key does nothing."""
    instead: str = ""
    """A key that is known elsewhere: where to write it."""
    remark: str = ""
    """What is worth knowing about a key that works."""
    candidates: Iterable[str] = ()
    """For an unknown key: names it may have meant."""


_FINE = _Verdict(known=True)


def check_keys(
    raw: Settings, clusters: Collection[ClusterAlias], *, findings: Findings, strict: bool
) -> None:
    """Say of every key of the file whether it is understood. `strict`: what is not understood is a
    problem."""
    for key, prop in raw.items():
        if "->" in key.partition(".")[0] or any(key.startswith(f"{alias}->") for alias in clusters):
            _check_flow_key(key, prop, clusters, findings=findings, strict=strict)
            continue
        verdict = _at_top(key, clusters)
        alias = next((a for a in sorted(clusters, key=len, reverse=True) if key.startswith(f"{a}.")), None)
        if alias is not None and (not verdict.known or verdict.no_effect):
            verdict = _at_cluster(alias, key[len(alias) + 1 :])
        _report(key, prop, verdict, findings=findings, strict=strict)


def _check_flow_key(
    key: str, prop: Property, clusters: Collection[ClusterAlias], *, findings: Findings, strict: bool
) -> None:
    for source in clusters:
        for target in clusters:
            prefix = f"{source}->{target}."
            if key.startswith(prefix):
                if source == target:
                    findings.problem(key, "a cluster is never replicated into itself", line=prop.line)
                else:
                    _report(
                        key,
                        prop,
                        _at_flow(source, target, key[len(prefix) :]),
                        findings=findings,
                        strict=strict,
                    )
                return
    source, _, rest = key.partition("->")
    target = next((a for a in clusters if rest.startswith(f"{a}.")), rest.partition(".")[0])
    unknown = [alias for alias in (source, target) if alias not in clusters]
    known = ", ".join(clusters) or "none"
    names = " and ".join(repr(alias) for alias in unknown) or repr(key)
    findings.problem(key, f"{names}: no such cluster; clusters: {known}", line=prop.line)


def _report(key: str, prop: Property, verdict: _Verdict, *, findings: Findings, strict: bool) -> None:
    if verdict.remark:
        findings.warning(key, verdict.remark, line=prop.line)
        return
    if verdict.known and not verdict.no_effect:
        return
    if verdict.no_effect:
        findings.info(key, f"has no effect: {verdict.no_effect}", line=prop.line)
        return
    if verdict.instead:
        text = f"has no effect here: {verdict.instead}"
    else:
        nearest = difflib.get_close_matches(key, list(verdict.candidates), n=1, cutoff=0.75)
        text = f"unknown key{f'; did you mean {nearest[0]}?' if nearest else ''}"
    if strict:
        findings.problem(key, text, line=prop.line)
    else:
        findings.warning(key, text, line=prop.line)


def _at_top(key: str, clusters: Collection[ClusterAlias]) -> _Verdict:
    if (
        key in CLUSTER_CLIENT_KEYS
        or key.startswith(_OPEN_PREFIXES_AT_TOP)
        or key.startswith("replication.policy.")
    ):
        return _FINE
    spec = BY_ANY_NAME.get(key)
    if spec is not None and spec.scope in _AT_TOP:
        return _Verdict(known=True, no_effect=spec.no_effect)
    if key.startswith(_TOPIC_SETTING_PREFIXES):
        return _Verdict(known=True, no_effect="settings of Connect's own topics")
    some = next(iter(clusters), "A")
    if spec is not None and spec.scope is Scope.TARGET:
        return _Verdict(
            known=False, instead=spec.no_effect or f"write it for the target cluster, as {some}.{key}"
        )
    if spec is not None and spec.scope is Scope.FLOW_ONLY:
        return _Verdict(known=False, instead=f"write it for a flow, as A->B.{key}")
    client, _, name = key.partition(".")
    if name in KEYS_BY_CLIENT.get(client, ()):
        return _Verdict(known=False, instead=f"write it for a cluster, as {some}.{key}")
    alias, _, rest = key.partition(".")
    if alias not in clusters and rest and _at_cluster(alias, rest) == _FINE:
        return _Verdict(known=False, instead=f"{alias!r} is not in clusters")
    names = (n for n, s in BY_ANY_NAME.items() if s.scope in _AT_TOP)
    return _Verdict(known=False, candidates=(*names, *SECURITY_KEYS))


def _at_cluster(alias: ClusterAlias, key: str) -> _Verdict:
    if key in CLUSTER_CLIENT_KEYS:
        return _FINE
    client, _, name = key.partition(".")
    if client in KEYS_BY_CLIENT:
        if name in KEYS_BY_CLIENT[client]:
            return _FINE
        return _Verdict(known=False, candidates=[f"{alias}.{client}.{n}" for n in KEYS_BY_CLIENT[client]])
    spec = BY_ANY_NAME.get(key)
    if spec is not None and spec.scope in _AT_CLUSTER:
        return _Verdict(known=True, no_effect=spec.no_effect)
    if key.startswith(_TOPIC_SETTING_PREFIXES):
        return _Verdict(known=True, no_effect="settings of Connect's own topics")
    if spec is not None and not spec.no_effect:
        place = "at the top level" if spec.scope is Scope.TOP else f"for a flow, as A->{alias}.{key}"
        return _Verdict(known=False, instead=f"write it {place}")
    of_clients = [client for client, names in KEYS_BY_CLIENT.items() if key in names]
    if of_clients:
        places = " or ".join(f"{alias}.{client}.{key}" for client in of_clients)
        return _Verdict(known=False, instead=f"write it for a client, as {places}")
    names = (n for n, s in BY_ANY_NAME.items() if s.scope in _AT_CLUSTER)
    return _Verdict(known=False, candidates=[f"{alias}.{n}" for n in (*names, *CLUSTER_CLIENT_KEYS)])


def _at_flow(source: ClusterAlias, target: ClusterAlias, key: str) -> _Verdict:
    flow = f"{source}->{target}"
    if key in SECURITY_KEYS or key.startswith(("config.providers", "replication.policy.")):
        return _FINE
    spec = BY_ANY_NAME.get(key)
    if spec is not None and spec.scope in _AT_FLOW:
        return _Verdict(known=True, no_effect=spec.no_effect)
    if spec is not None and spec.scope in _AT_CLUSTER:
        return _Verdict(known=False, instead=spec.no_effect or f"write it as {target}.{key}")
    if spec is not None:
        return _Verdict(known=False, instead="write it at the top level")
    return _client_key_at_flow(target, key) or _Verdict(
        known=False, candidates=[f"{flow}.{n}" for n, s in BY_ANY_NAME.items() if s.scope in _AT_FLOW]
    )


def _client_key_at_flow(target: ClusterAlias, key: str) -> _Verdict | None:
    """`consumer.…`, `source.consumer.…`, `producer.override.…`, `source.cluster.…`; None for anything else."""
    for side in ("source.cluster.", "target.cluster."):
        if key.startswith(side) and key[len(side) :] in CLUSTER_CLIENT_KEYS:
            return _FINE
    for client, names in KEYS_BY_CLIENT.items():
        override, plain = f"{client}.override.", f"{client}."
        if key.startswith(override) and key[len(override) :] in names:
            reason = f"use source.{client}. or target.{client}."
            return _FINE if client == "producer" else _Verdict(known=True, no_effect=reason)
        for prefix in (plain, f"source.{plain}", f"target.{plain}"):
            name = key[len(prefix) :]
            if not key.startswith(prefix) or name not in names:
                continue
            if client != "producer":
                return _FINE
            remark = f"reaches only the producer of offset syncs; records take producer.override.{name} or "
            return _Verdict(known=True, remark=f"{remark}{target}.producer.{name}")
    return None


def check_values(raw: Settings, findings: Findings) -> None:
    """Values that Kafka takes as they are and that nobody means."""
    for key, prop in raw.items():
        if is_secret(key):
            continue
        base = key.partition("->")[2].partition(".")[2] or key
        if " #" in prop.value:
            text = "' #…' is part of the value: a comment has to be on a line of its own"
            findings.warning(key, text, line=prop.line)
        if base in ("enabled", "emit.heartbeats.enabled") and prop.value != prop.value.strip():
            text = "MM2 takes this for false when it looks for flows, because of the blank behind the value"
            findings.warning(key, text, line=prop.line)
        if base in _PATTERN_LISTS:
            for element in split_list(prop.value):
                if element.count("{") != element.count("}") or element.count("[") != element.count("]"):
                    text = (
                        f"{element!r} looks cut in two: a comma always separates, also inside an expression"
                    )
                    findings.warning(key, text, line=prop.line)
