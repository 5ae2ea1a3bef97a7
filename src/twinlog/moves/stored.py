"""How the record of moves is stored: rows of the compacted topic `mm2-failover.<A>.internal` on the flow's
target. Pure.

| key | value |
|---|---|
| `["TwinlogMove",{flow}]` | the last run |
| `["TwinlogMovedGroup",{flow,group}]` | the home of a group |
| `["TwinlogFence",{flow,cluster,topic}]` | the run that fenced the topic |
| `["TwinlogGrant",{flow,acl}]` | the run that granted the right |

The topic's content is not trusted: whoever may write it must not gain Twinlog's right to change ACLs. A fence
has a topic and no other field, and a grant that has not the form of Twinlog's is dropped.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from twinlog.acl_rights import is_write_grant
from twinlog.errors import WireFormatError
from twinlog.kafka.ports import AclBinding
from twinlog.model import Flow
from twinlog.moves.earlier import (
    EARLIER,
    EarlierGroup,
    EarlierPart,
    EarlierRun,
    converted,
    earlier_group,
    number,
    offsets_of,
    text,
    texts,
)
from twinlog.moves.record import Certainty, GroupOffsets, Home, MoveKind, Moves, MoveState, Run, Step

RUN, HOME, FENCE, GRANT, PART = (
    "TwinlogMove",
    "TwinlogMovedGroup",
    "TwinlogFence",
    "TwinlogGrant",
    "TwinlogMovePart",
)
_RUN_FORMAT = 3
_HOME_FORMAT = 2
_FORMAT = 1

Key = tuple[str, ...]
"""Kind and place of a row: (RUN,), (HOME, group), (FENCE, cluster, topic), (GRANT, field …), (PART, name)."""
Row = Run | Home | str | EarlierRun | EarlierGroup | EarlierPart
"""Fences and grants are the id of their run."""

_ACL_FIELDS = tuple(AclBinding.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class MovesCodec:
    """The rows of one flow."""

    flow: Flow

    def decode_key(self, key: bytes) -> Key | None:
        try:
            name, place = json.loads(key)
            if name not in (RUN, HOME, FENCE, GRANT, PART) or place["flow"] != str(self.flow):
                return None
            match name:
                case "TwinlogMovedGroup":
                    return name, text(place["group"])
                case "TwinlogFence":
                    return name, text(place["cluster"]), text(place["topic"])
                case "TwinlogGrant":
                    return name, *(text(place["acl"][part]) for part in _ACL_FIELDS)
                case "TwinlogMovePart":
                    return name, text(place["part"])
            return (name,)
        except (ValueError, KeyError, TypeError, RecursionError):
            return None

    def decode_value(self, key: Key, value: bytes) -> Row:
        """Raises WireFormatError: WIRE_VERSION for a later format, WIRE_FORMAT for anything else that cannot
        be read, FENCE_NOT_OURS for a record of an earlier release with an ACL that is no fence."""
        try:
            if key[0] == PART:
                return EarlierPart(value)
            fields = json.loads(value)
            decode = _DECODERS.get((key[0], fields["format"]))
            if decode is None:
                raise WireFormatError(
                    f"the record {key[0]} of moves has format {fields['format']}, which this release does not"
                    " read",
                    reason="WIRE_VERSION",
                )
            return decode(fields)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise WireFormatError(f"the record {key[0]} of moves is damaged: {error!r}") from error

    def encode(self, key: Key, value: Row | None) -> tuple[bytes, bytes | None]:
        kind, *names = key
        place: dict[str, Any] = {"flow": str(self.flow)}
        match kind:
            case "TwinlogMovedGroup":
                place["group"] = names[0]
            case "TwinlogFence":
                place |= {"cluster": names[0], "topic": names[1]}
            case "TwinlogGrant":
                place["acl"] = dict(zip(_ACL_FIELDS, names, strict=True))
            case "TwinlogMovePart":
                place["part"] = names[0]
        return _json([kind, place]), None if value is None else _json(_fields(value))


def _fields(row: Row) -> Mapping[str, object]:
    match row:
        case Run():
            # configsync reads some of these fields.
            return {"format": _RUN_FORMAT, **{name: getattr(row, name) for name in Run.__dataclass_fields__}}
        case Home():
            return {
                "format": _HOME_FORMAT,
                "where": row.where,
                "run": row.run,
                "stood_at": _by_topic(row.stood_at),
                "left_at": _by_topic(row.left_at),
                "certainty": row.certainty,
            }
        case str():
            return {"format": _FORMAT, "run": row}
    raise AssertionError("a row of an earlier release is not written")


def _decode_run(fields: Mapping[str, Any]) -> Run:
    return Run(
        run_id=text(fields["run_id"]),
        kind=MoveKind(fields["kind"]),
        state=MoveState(fields["state"]),
        groups=texts(fields["groups"]),
        by=text(fields["by"]),
        started_ms=number(fields["started_ms"]),
        finished_ms=None if fields["finished_ms"] is None else number(fields["finished_ms"]),
        done=tuple(map(Step, texts(fields["done"]))),
        aborted=fields["aborted"] is True,
        left_behind=texts(fields["left_behind"]),
        on_target=fields["on_target"] is True,
        any_group=EARLIER if fields["any_group"] is True else text(fields["any_group"] or ""),
        any_given_up=fields.get("any_given_up", False) is True,
    )


def _decode_home(fields: Mapping[str, Any]) -> Home:
    return Home(
        where=text(fields["where"]),
        run=text(fields["run"]),
        stood_at=offsets_of(fields["stood_at"]),
        left_at=offsets_of(fields["left_at"]),
        certainty=Certainty(fields["certainty"]),
    )


def _by_topic(offsets: GroupOffsets) -> dict[str, dict[str, int]]:
    by_topic: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        by_topic.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return by_topic


_DECODERS: Mapping[tuple[str, object], Callable[[Mapping[str, Any]], Row]] = {
    (RUN, 1): EarlierRun,
    (RUN, 2): EarlierRun,
    (RUN, _RUN_FORMAT): _decode_run,
    (HOME, 1): earlier_group,
    (HOME, _HOME_FORMAT): _decode_home,
    (FENCE, _FORMAT): lambda fields: text(fields["run"]),
    (GRANT, _FORMAT): lambda fields: text(fields["run"]),
}


def moves_of(flow: Flow, rows: Mapping[Key, Row]) -> Moves:
    """What the rows say. Raises WireFormatError for a record of an earlier release that cannot be converted.

    That record is replaced after its homes, fences and grants: while it is there, both count."""
    run = rows.get((RUN,))
    moves = Moves(flow=flow, run=run if isinstance(run, Run) else None)
    if isinstance(run, EarlierRun):
        moves = converted(
            flow,
            run,
            {key[1]: row for key, row in rows.items() if isinstance(row, EarlierGroup)},
            {key[1]: row.value for key, row in rows.items() if isinstance(row, EarlierPart)},
        )
    homes, grants = dict(moves.homes), dict(moves.grants)
    fences = {cluster: dict(topics) for cluster, topics in moves.fences.items()}
    for key, row in rows.items():
        if isinstance(row, Home):
            # What was moved before a failback of every group is over, also if its row was not removed.
            if moves.on_target or (row.where == flow.source and row.stood_at):
                homes[key[1]] = row if moves.on_target else replace(row, certainty=Certainty.SURE)
        elif isinstance(row, str) and key[0] == FENCE:
            fences.setdefault(key[1], {})[key[2]] = row
        elif isinstance(row, str) and is_write_grant(grant := _binding(key)):
            grants[grant] = row
    return replace(moves, homes=homes, fences=fences, grants=grants)


def _binding(key: Key) -> AclBinding:
    return AclBinding(**dict(zip(_ACL_FIELDS, key[1:], strict=True)))


def rows_of(moves: Moves) -> dict[Key, Row]:
    """The rows, the run's last."""
    rows: dict[Key, Row] = {(HOME, group): home for group, home in moves.homes.items()}
    for cluster, topics in moves.fences.items():
        rows |= {(FENCE, cluster, topic): run for topic, run in topics.items()}
    rows |= {
        (GRANT, *(getattr(grant, part) for part in _ACL_FIELDS)): run for grant, run in moves.grants.items()
    }
    return rows if moves.run is None else rows | {(RUN,): moves.run}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
