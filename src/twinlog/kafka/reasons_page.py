"""docs/reasons.md, generated from the tables of reasons: `python -m twinlog.kafka.reasons_page
docs/reasons.md`."""

import sys
from pathlib import Path

from twinlog.kafka.errors import CLIENT_REASONS, KAFKA_REASONS, Reason
from twinlog.reasons import REASON_GROUPS
from twinlog.reasons.rows import ReasonGroup

_HEAD = """# Reasons

Generated from `src/twinlog/reasons/` and `src/twinlog/kafka/errors.py` by `python -m
twinlog.kafka.reasons_page docs/reasons.md`. Do not edit: a test compares.

Every error of Twinlog has a stable `reason`: in logs, in statuses, in `-o json` and in the `ErrorInfo` of
gRPC errors. First those that Twinlog gives itself, by where they are met; then those that come from Kafka.
A partition that stopped is retried after 1 s, then 2 s, up to 60 s, whatever its reason: it heals without a
command once the cause is gone.
"""

_KAFKA_HEAD = """
## From Kafka's brokers and clients

"Again" says whether Twinlog tries again by itself; the others wait for someone to act (partitions are tried
all the same). The codes are those of Kafka's protocol; without one the failure was noticed on this side. A
status of gRPC without a reason of Twinlog's is `GRPC_` and its name.

| reason | again | what it means | Kafka's codes |
|---|---|---|---|
"""


def render_reasons() -> str:
    """The whole page."""
    return _HEAD + "".join(map(_group, REASON_GROUPS)) + _KAFKA_HEAD + _kafka_rows()


def _group(group: ReasonGroup) -> str:
    rows = "".join(f"| `{each.name}` | {each.meaning} | {each.remedy} |\n" for each in group.reasons)
    return f"\n## {group.title}\n\n| reason | what it means | what to do |\n|---|---|---|\n{rows}"


def _kafka_rows() -> str:
    rows: dict[str, tuple[list[str], bool, list[int]]] = {}
    for reason in CLIENT_REASONS:
        _add(rows, reason, None)
    for code, reason in sorted(KAFKA_REASONS.items()):
        _add(rows, reason, code)
    lines = []
    for name, (meanings, retriable, codes) in sorted(rows.items()):
        again = "yes" if retriable else "no"
        lines.append(f"| `{name}` | {again} | {'; '.join(meanings)} | {', '.join(map(str, codes))} |")
    return "\n".join(lines) + "\n"


def _add(rows: dict[str, tuple[list[str], bool, list[int]]], reason: Reason, code: int | None) -> None:
    meanings, _, codes = rows.setdefault(reason.name, ([], reason.retriable, []))
    if reason.meaning not in meanings:
        meanings.append(reason.meaning)
    if code is not None:
        codes.append(code)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render_reasons(), encoding="utf-8")
