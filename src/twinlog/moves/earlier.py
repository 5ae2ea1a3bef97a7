"""Reads the record of moves as Twinlog 0.1 and builds before the rows of today wrote it, and converts it.
Pure.

There the last run's record had everything but the offsets of groups: it named *chains* of runs, by which each
group's record told which run had finished it. Lists that did not fit into one record were in *parts*.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twinlog.acl_rights import is_write_grant
from twinlog.errors import WireFormatError
from twinlog.kafka.ports import AclBinding
from twinlog.model import Flow, TopicPartition
from twinlog.moves.record import Certainty, GroupOffsets, Home, MoveKind, Moves, MoveState, Run, Step
from twinlog.write_blocks import is_fence

EARLIER = "earlier"
"""Stands for the id of a run that is not known."""
_IN_PARTS = 2
"""The format in which lists are in parts: fences as names of topics, grants as ACLs."""


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """The record of the last run."""

    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierGroup:
    """The record of a group: where the chain that finished it last found it, and where it left it."""

    chain: str
    stood_at: GroupOffsets
    left_at: GroupOffsets


@dataclass(frozen=True, slots=True)
class EarlierPart:
    value: bytes


def earlier_group(fields: Mapping[str, Any]) -> EarlierGroup:
    return EarlierGroup(
        chain=text(fields["chain"]),
        stood_at=offsets_of(fields["stood_at"]),
        left_at=offsets_of(fields.get("left_at", {})),
    )


def converted(
    flow: Flow, run: EarlierRun, groups: Mapping[str, EarlierGroup], parts: Mapping[str, bytes]
) -> Moves:
    """The record in today's form. Raises WireFormatError: FENCE_NOT_OURS for an ACL that is no fence."""
    try:
        return _converted(flow, run.fields, groups, parts)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WireFormatError(f"the record of the last move is damaged: {error!r}") from error


def _converted(
    flow: Flow, fields: Mapping[str, Any], groups: Mapping[str, EarlierGroup], parts: Mapping[str, bytes]
) -> Moves:
    kind, state = MoveKind(fields["kind"]), MoveState(fields["state"])
    aborted = fields.get("aborted", False) is True
    back = kind is MoveKind.FAILBACK and state is MoveState.DONE and not aborted
    on_target = fields.get("on_target", not back) is True
    unfinished = fields.get("unfinished", [])
    run_id, requested = text(fields["run_id"]), texts(fields["groups"])
    is_cut = kind is MoveKind.FAILOVER and (state is MoveState.RUNNING or aborted)
    # A failover that did not end had not recorded for which groups it had committed offsets.
    unsure = () if unfinished is None else (*texts(unfinished), *(requested if is_cut else ()))
    homes = _homes(flow, kind, fields, groups)
    if not on_target:
        homes = {group: home for group, home in homes.items() if home.where == flow.source}
    # Those of runs before it, which giving it up does not end.
    before = fields.get("unfinished_before", []) if state is MoveState.RUNNING else unfinished
    unsure_before = frozenset(texts(before or []))
    for group in unsure if on_target else ():
        is_own = is_cut and group not in unsure_before
        home = homes.get(group, Home(where=flow.source, run=run_id if is_own else EARLIER))
        if home.where == flow.target:
            continue
        homes[group] = Home(
            where=home.where,
            run=run_id if is_own else home.run,
            stood_at=home.stood_at,
            left_at=home.left_at,
            certainty=Certainty.GIVEN_UP if aborted and is_own else Certainty.BEGUN,
        )
    # Before chains were recorded a record did not tell what a failover had moved.
    named = bool(fields.get("chain_before")) or kind is MoveKind.FAILOVER
    any_group = ""
    if on_target and (unfinished is None or not named):
        any_group = EARLIER
    elif on_target and is_cut and not requested:
        any_group = run_id
    here, there = flow.source, flow.target
    if kind is MoveKind.FAILBACK:
        here, there = there, here
    earlier = set(_fenced(fields.get("fences_before", []), fields, parts))
    fences = {
        here: {
            topic: EARLIER if topic in earlier else run_id
            for topic in _fenced(fields["fences"], fields, parts)
        },
        there: dict.fromkeys(_fenced(fields["former_fences"], fields, parts), EARLIER),
    }
    grants = [*fields.get("grants", []), *fields.get("former_grants", [])]
    return Moves(
        flow=flow,
        run=Run(
            run_id=run_id,
            kind=kind,
            state=state,
            groups=requested,
            by=text(fields["by"]),
            started_ms=number(fields["started_ms"]),
            finished_ms=None if fields["finished_ms"] is None else number(fields["finished_ms"]),
            done=tuple(map(Step, texts(fields["done"]))),
            aborted=aborted,
            left_behind=texts(fields.get("left_behind", [])),
            on_target=on_target,
            any_group=any_group,
            any_given_up=aborted and any_group == run_id,
        ),
        homes=homes,
        fences={cluster: topics for cluster, topics in fences.items() if topics},
        grants={
            binding: run_id
            for each in _items(grants, fields, parts)
            if is_write_grant(binding := _binding(each))
        },
    )


def _homes(
    flow: Flow, kind: MoveKind, fields: Mapping[str, Any], groups: Mapping[str, EarlierGroup]
) -> dict[str, Home]:
    """Where the chains took their groups: the run's own, the one before in the other direction, and earlier
    ones of failovers."""
    is_failover = kind is MoveKind.FAILOVER
    where = dict.fromkeys(texts(fields.get("chains_there", [])), flow.target)
    where[text(fields.get("chain_before", ""))] = flow.source if is_failover else flow.target
    where[text(fields.get("chain", ""))] = flow.target if is_failover else flow.source
    homes = {
        group: Home(where=where[found.chain], run=found.chain, stood_at=found.stood_at, left_at=found.left_at)
        for group, found in groups.items()
        if found.chain in where
    }
    for group in texts(fields["moved"]):
        # Moved, but it is not known from where.
        if is_failover:
            homes[group] = Home(where=flow.target, run=EARLIER, certainty=Certainty.BEGUN)
        elif homes.get(group) is not None and homes[group].where == flow.target:
            del homes[group]
    return homes


def _fenced(names: Any, fields: Mapping[str, Any], parts: Mapping[str, bytes]) -> list[str]:
    items = _items(names, fields, parts)
    if fields["format"] == _IN_PARTS:
        return list(map(text, items))
    for binding in map(_binding, items):
        if not is_fence(binding):
            raise WireFormatError(
                f"the record of the last move names an ACL that is not a fence of Twinlog:"
                f" {binding.permission} {binding.operation} for {binding.principal} on"
                f" {binding.resource_type} {binding.resource_name!r}. It is neither created nor deleted:"
                " find out who wrote the record, then delete the topic that holds it",
                reason="FENCE_NOT_OURS",
                metadata={"principal": binding.principal, "resource": binding.resource_name},
            )
    return [_binding(item).resource_name for item in items]


def _items(names: Any, fields: Mapping[str, Any], parts: Mapping[str, bytes]) -> list[Any]:
    """The items of a list, which are in parts or not."""
    if fields["format"] != _IN_PARTS:
        return list(names)
    items: list[Any] = []
    for name in names:
        if name not in parts:
            raise WireFormatError(f"the record of the last move is damaged: its part {name!r} is missing")
        items += json.loads(parts[name])["items"]
    return items


def _binding(fields: Any) -> AclBinding:
    return AclBinding(**{name: text(part) for name, part in fields.items()})


def offsets_of(by_topic: Mapping[str, Mapping[str, object]]) -> GroupOffsets:
    return {
        TopicPartition(topic, int(index)): number(offset)
        for topic, partitions in by_topic.items()
        for index, offset in partitions.items()
    }


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, found {value!r}")
    return value


def texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list of texts, found {value!r}")
    return tuple(map(text, value))


def number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"expected a whole number, found {value!r}")
    return value
