"""The form of a move's record in the journal. Pure.

The content of the journal is not trusted: whoever may write its topic must not gain Twinlog's right to change
ACLs. A record that names an ACL of another form than Twinlog's fences is refused as a whole (FENCE_NOT_OURS).
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from twinlog.acl_rights import is_write_grant
from twinlog.errors import WireFormatError
from twinlog.kafka.ports import AclBinding
from twinlog.model import Flow, TopicPartition
from twinlog.write_blocks import fence_of, is_fence
from twinlog_checkpoint.journal.record import GroupOffsets, MoveKind, MoveRecord, MoveState, Step
from twinlog_checkpoint.journal.record_parts import pack, unpack

_FORMAT = 1
_FORMAT_IN_PARTS = 2
"""Lists are in parts: `fences` as names of topics, `grants` as ACLs."""
_LARGEST_BYTES = 900_000
"""A record without parts. Earlier releases read it, too."""
_MOST_ACLS = 6_000
"""More ACLs are larger than `_LARGEST_BYTES` in any case."""


def record_key(flow: Flow) -> bytes:
    return _key("TwinlogMove", {"flow": str(flow)})


def is_large(record: MoveRecord) -> bool:
    """Whether the record has parts in any case, and is encoded and decoded in tenths of a second."""
    lists = record.fences, record.former_fences, record.fences_before, record.grants, record.former_grants
    return sum(map(len, lists)) > _MOST_ACLS


def encode_record(flow: Flow, record: MoveRecord) -> tuple[bytes, bytes, Mapping[str, bytes]]:
    """Encode the record without its groups: its key, its value and the parts that the value names.

    Groups have records of their own, because thousands of them do not fit into one. Fences and grants have
    parts if they do not fit.
    """
    fences = {
        "fences": record.fences,
        "former_fences": record.former_fences,
        "fences_before": record.fences_before,
    }
    grants = {"grants": record.grants, "former_grants": record.former_grants}
    small = _small(record)
    if not is_large(record):
        lists = {name: [_acl_fields(each) for each in acls] for name, acls in (fences | grants).items()}
        value = _json({"format": _FORMAT, **small, **lists})
        if len(value) <= _LARGEST_BYTES:
            return record_key(flow), value, {}
    packed = {
        **{name: pack([fence.resource_name for fence in acls]) for name, acls in fences.items()},
        **{name: pack([_acl_fields(grant) for grant in acls]) for name, acls in grants.items()},
    }
    value = _json({"format": _FORMAT_IN_PARTS, **small, **{name: list(of) for name, of in packed.items()}})
    return record_key(flow), value, {name: part for of in packed.values() for name, part in of.items()}


def _small(record: MoveRecord) -> dict[str, object]:
    """The fields that every record holds itself. configsync reads some of them."""
    return {
        "run_id": record.run_id,
        "kind": record.kind,
        "state": record.state,
        "groups": record.groups,
        "by": record.by,
        "started_ms": record.started_ms,
        "finished_ms": record.finished_ms,
        "done": record.done,
        "aborted": record.aborted,
        "on_target": record.on_target,
        "chain": record.chain,
        "chain_before": record.chain_before,
        # Chains and not groups, of which there may be too many for one record. Earlier builds wrote it under
        # this name.
        "chains_there": record.earlier_chains,
        "unfinished": _names(record.unfinished),
        "unfinished_before": _names(record.unfinished_before),
        "whole": record.whole,
        "left_behind": record.left_behind,
        "moved": sorted(set(record.moved) - record.stood_at.keys()),
        # Earlier releases read this field.
        "stood_at": {},
        "final_offsets": [],
    }


def _acl_fields(binding: AclBinding) -> dict[str, str]:
    """As `dataclasses.asdict`, which takes a second for the ACLs of a large flow."""
    return {name: getattr(binding, name) for name in AclBinding.__dataclass_fields__}


def decode_record(value: bytes, parts: Mapping[str, bytes] = MappingProxyType({})) -> MoveRecord:
    """`parts` are those of the topic. Raises WireFormatError: FENCE_NOT_OURS for an ACL that is no fence,
    WIRE_VERSION for a newer format, WIRE_FORMAT for anything else."""
    try:
        fields = json.loads(value)
        if fields["format"] not in (_FORMAT, _FORMAT_IN_PARTS):
            raise WireFormatError(
                f"the record of the last move has format {fields['format']}, this release reads {_FORMAT} and"
                f" {_FORMAT_IN_PARTS}",
                reason="WIRE_VERSION",
            )

        def fences(name: str) -> tuple[AclBinding, ...]:
            if fields["format"] == _FORMAT_IN_PARTS:
                return tuple(fence_of(_text(topic)) for topic in unpack(fields[name], parts))
            return _fences(fields[name])

        def grants(name: str) -> tuple[AclBinding, ...]:
            if fields["format"] == _FORMAT_IN_PARTS:
                return _grants(unpack(fields[name], parts))
            return _grants(fields.get(name, []))

        kind, state = MoveKind(fields["kind"]), MoveState(fields["state"])
        aborted = fields.get("aborted", False) is True
        back = kind is MoveKind.FAILBACK and state is MoveState.DONE and not aborted
        return MoveRecord(
            run_id=_text(fields["run_id"]),
            kind=kind,
            state=state,
            groups=_texts(fields["groups"]),
            by=_text(fields["by"]),
            started_ms=_number(fields["started_ms"]),
            finished_ms=None if fields["finished_ms"] is None else _number(fields["finished_ms"]),
            done=tuple(Step(step) for step in fields["done"]),
            fences=fences("fences"),
            former_fences=fences("former_fences"),
            aborted=aborted,
            on_target=fields.get("on_target", not back) is True,
            chain=_text(fields.get("chain", "")),
            chain_before=_text(fields.get("chain_before", "")),
            earlier_chains=_texts(fields.get("chains_there", [])),
            unfinished=_unfinished(fields.get("unfinished", [])),
            unfinished_before=_unfinished(fields.get("unfinished_before", [])),
            whole=fields.get("whole", fields["state"] == MoveState.DONE and not fields["groups"]) is True,
            fences_before=fences("fences_before") if "fences_before" in fields else (),
            left_behind=_texts(fields.get("left_behind", [])),
            grants=grants("grants"),
            former_grants=grants("former_grants"),
            moved=_texts(fields["moved"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WireFormatError(f"the record of the last move is damaged: {error!r}") from error


def _names(groups: frozenset[str] | None) -> list[str] | None:
    return None if groups is None else sorted(groups)


def _unfinished(value: object) -> frozenset[str] | None:
    return None if value is None else frozenset(_texts(value))


def group_key(flow: Flow, group: str) -> bytes:
    return _key("TwinlogMovedGroup", {"flow": str(flow), "group": group})


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedGroup:
    """The record of one group."""

    group: str
    chain: str
    stood_at: GroupOffsets
    left_at: GroupOffsets


def encode_group(flow: Flow, moved: MovedGroup) -> tuple[bytes, bytes]:
    value = {
        "format": _FORMAT,
        "chain": moved.chain,
        "stood_at": _by_topic(moved.stood_at),
        "left_at": _by_topic(moved.left_at),
    }
    return group_key(flow, moved.group), _json(value)


def with_groups(last: MoveRecord, groups: Collection[MovedGroup]) -> MoveRecord:
    """Return the record with its groups. `groups` are those of the journal: each has the chain that finished
    it last."""
    earlier = frozenset(last.earlier_chains)
    before = frozenset({last.chain_before} - {""})
    if last.kind is MoveKind.FAILBACK:
        before, earlier = before | earlier, frozenset()
    stood_at, left_at = _places(groups, {last.chain})
    stood_before, left_before = _places(groups, before)
    stood_earlier, left_earlier = _places(groups, earlier)
    return replace(
        last,
        stood_at=stood_at,
        left_at=left_at,
        stood_before=stood_before,
        left_before=left_before,
        stood_earlier=stood_earlier,
        left_earlier=left_earlier,
        moved=tuple(sorted({*last.moved, *stood_at})),
    )


def _places(
    groups: Collection[MovedGroup], chains: Collection[str]
) -> tuple[dict[str, GroupOffsets], dict[str, GroupOffsets]]:
    """Where these chains found their groups, and where they left them."""
    found = [each for each in groups if each.chain in chains]
    return (
        {each.group: each.stood_at for each in found},
        {each.group: each.left_at for each in found if each.left_at},
    )


def _by_topic(offsets: GroupOffsets) -> dict[str, dict[str, int]]:
    by_topic: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        by_topic.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return by_topic


def _offsets(by_topic: Mapping[str, Mapping[str, object]]) -> GroupOffsets:
    return {
        TopicPartition(topic, int(number)): _number(offset)
        for topic, partitions in by_topic.items()
        for number, offset in partitions.items()
    }


def decode_group(flow: Flow, key: bytes, value: bytes) -> MovedGroup | None:
    """Return None for a record of another kind, flow or format."""
    try:
        name, place = json.loads(key)
        if name != "TwinlogMovedGroup" or place["flow"] != str(flow):
            return None
        fields = json.loads(value)
        if fields["format"] != _FORMAT:
            return None
        return MovedGroup(
            group=_text(place["group"]),
            chain=_text(fields["chain"]),
            stood_at=_offsets(fields["stood_at"]),
            left_at=_offsets(fields.get("left_at", {})),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _bindings(value: Any) -> tuple[AclBinding, ...]:
    return tuple(AclBinding(**{name: _text(part) for name, part in each.items()}) for each in value)


def _grants(value: Any) -> tuple[AclBinding, ...]:
    """Keep the grants that have Twinlog's form. Others are dropped: an unknown grant is then not revoked."""
    return tuple(filter(is_write_grant, _bindings(value)))


def _fences(value: Any) -> tuple[AclBinding, ...]:
    found = _bindings(value)
    for binding in found:
        if not is_fence(binding):
            raise WireFormatError(
                f"the record of the last move names an ACL that is not a fence of Twinlog:"
                f" {binding.permission} {binding.operation} for {binding.principal} on"
                f" {binding.resource_type} {binding.resource_name!r}. It is neither created nor deleted:"
                " find out who wrote the record, then delete the topic that holds it",
                reason="FENCE_NOT_OURS",
                metadata={"principal": binding.principal, "resource": binding.resource_name},
            )
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, found {value!r}")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list of texts, found {value!r}")
    return tuple(map(_text, value))


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"expected a whole number, found {value!r}")
    return value


def _key(name: str, place: Mapping[str, str]) -> bytes:
    return _json([name, place])


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
