"""The record of a flow's last move, and its form in the journal. Pure.

The content of the journal is not trusted: whoever may write its topic must not gain Twinlog's right to change
ACLs. A record that names an ACL of another form than Twinlog's fences is refused as a whole (FENCE_NOT_OURS).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from twinlog.acl_rights import is_write_grant
from twinlog.errors import WireFormatError
from twinlog.kafka.ports import AclBinding
from twinlog.model import Flow, TopicPartition
from twinlog.write_blocks import is_fence

_FORMAT = 1


class MoveKind(StrEnum):
    FAILOVER = "failover"
    FAILBACK = "failback"


class MoveState(StrEnum):
    RUNNING = "RUNNING"
    DONE = "DONE"


class Step(StrEnum):
    """The steps of a move, in order."""

    CHECK = "CHECK"
    FENCE = "FENCE"
    FINAL_OFFSETS = "FINAL_OFFSETS"
    DRAIN = "DRAIN"
    TRANSLATE = "TRANSLATE"
    COMMIT = "COMMIT"
    VERIFY = "VERIFY"
    GRANT = "GRANT"
    """Shown to users, but never recorded as done: earlier releases do not know it."""
    REVOKE = "REVOKE"
    """As GRANT."""
    UNFENCE = "UNFENCE"
    DONE = "DONE"


GroupOffsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRecord:
    """The last move of a flow."""

    run_id: str
    kind: MoveKind
    state: MoveState
    groups: tuple[str, ...]
    """The requested groups; empty = all."""
    by: str
    started_ms: int
    finished_ms: int | None = None
    done: tuple[Step, ...] = ()
    fences: tuple[AclBinding, ...] = ()
    """ACLs that deny writes on the cluster that the groups left. They stay until the move back."""
    former_fences: tuple[AclBinding, ...] = ()
    """The fences of the previous move, on the cluster that the groups move to. This move removes them at its
    end."""
    aborted: bool = False
    """The run was given up and its fences were removed. Its state is DONE then, so nothing continues it."""
    on_target: bool = True
    """Groups may work on the flow's target because of this run or an earlier one. False before a failover has
    committed any offset, and after a failback."""
    chain: str = ""
    """Identifies the runs of one kind since the last move in the other direction. A group that one of them
    finished is not moved again."""
    chain_before: str = ""
    """The chain of the last move in the other direction."""
    stood_before: Mapping[str, GroupOffsets] = field(default_factory=dict)
    """The offsets at which the last move in the other direction found the groups, without those that this
    chain has finished."""
    left_before: Mapping[str, GroupOffsets] = field(default_factory=dict)
    """Where that move left these groups, on the cluster that they leave now."""
    moved: tuple[str, ...] = ()
    """Groups that these runs have finished."""
    whole: bool = False
    """The runs of this chain have finished every group: none was left out, or stayed because it had members.
    Until a failback reaches this, groups count as working on the target."""
    fences_before: tuple[AclBinding, ...] = ()
    """Those of `fences` that earlier runs of the chain created. Giving up this run does not remove them."""
    left_behind: tuple[str, ...] = ()
    """Why the cluster that the groups left must not be switched off yet; set when the run is done."""
    grants: tuple[AclBinding, ...] = ()
    """ACLs that allow writers of the source to write to the copies; they stay until the move back."""
    former_grants: tuple[AclBinding, ...] = ()
    """For a failback: the grants of the failover before it, which it removes at its end."""
    stood_at: Mapping[str, GroupOffsets] = field(default_factory=dict)
    """The offsets of the groups on the cluster that they left. If an offset of a group is another one now, or
    new, the group continued to work there, or was put back, and has to be moved again."""

    left_at: Mapping[str, GroupOffsets] = field(default_factory=dict)
    """Where the runs left the groups of `stood_at`, on the cluster that they moved to. Earlier releases do
    not record it."""

    def after(self, step: Step) -> "MoveRecord":
        return self if step in self.done else replace(self, done=(*self.done, step))

    def went_on(self, group: str, now: GroupOffsets, *, live: bool = True) -> bool:
        """Whether a group of `moved` has made progress, or was put back, since the run that moved it. `live`:
        the group's offsets are those of now; its last checkpoints may be older than the run."""
        then = self.stood_at.get(group)
        return then is None or any(
            partition not in then or offset > then[partition] or (live and offset != then[partition])
            for partition, offset in now.items()
        )


def record_key(flow: Flow) -> bytes:
    return _key("TwinlogMove", {"flow": str(flow)})


def encode_record(flow: Flow, record: MoveRecord) -> tuple[bytes, bytes]:
    """Encode the record without its groups. They have records of their own, because thousands of them do not
    fit into one."""
    value = {
        "format": _FORMAT,
        "run_id": record.run_id,
        "kind": record.kind,
        "state": record.state,
        "groups": record.groups,
        "by": record.by,
        "started_ms": record.started_ms,
        "finished_ms": record.finished_ms,
        "done": record.done,
        "fences": [asdict(fence) for fence in record.fences],
        "former_fences": [asdict(fence) for fence in record.former_fences],
        "aborted": record.aborted,
        "on_target": record.on_target,
        "chain": record.chain,
        "chain_before": record.chain_before,
        "whole": record.whole,
        "fences_before": [asdict(fence) for fence in record.fences_before],
        "left_behind": record.left_behind,
        "grants": [asdict(grant) for grant in record.grants],
        "former_grants": [asdict(grant) for grant in record.former_grants],
        "moved": sorted(set(record.moved) - record.stood_at.keys()),
        # Earlier releases read this field.
        "stood_at": {},
        "final_offsets": [],
    }
    return record_key(flow), _json(value)


def decode_record(value: bytes) -> MoveRecord:
    """Raises WireFormatError: FENCE_NOT_OURS for an ACL that is no fence, WIRE_VERSION for a newer format,
    WIRE_FORMAT for anything else."""
    try:
        fields = json.loads(value)
        if fields["format"] != _FORMAT:
            raise WireFormatError(
                f"the record of the last move has format {fields['format']}, this release reads {_FORMAT}",
                reason="WIRE_VERSION",
            )
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
            fences=_fences(fields["fences"]),
            former_fences=_fences(fields["former_fences"]),
            aborted=aborted,
            on_target=fields.get("on_target", not back) is True,
            chain=_text(fields.get("chain", "")),
            chain_before=_text(fields.get("chain_before", "")),
            whole=fields.get("whole", fields["state"] == MoveState.DONE and not fields["groups"]) is True,
            fences_before=_fences(fields.get("fences_before", [])),
            left_behind=_texts(fields.get("left_behind", [])),
            grants=_grants(fields.get("grants", [])),
            former_grants=_grants(fields.get("former_grants", [])),
            moved=_texts(fields["moved"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WireFormatError(f"the record of the last move is damaged: {error!r}") from error


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
