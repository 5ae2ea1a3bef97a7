"""docs/reasons.md, generated from the tables of reasons: `python -m twinlog.kafka.reasons_page
docs/reasons.md`."""

import sys
from collections.abc import Iterable
from pathlib import Path

from twinlog.kafka.errors import CLIENT_REASONS, KAFKA_REASONS, Reason
from twinlog.reasons import REASON_GROUPS
from twinlog.reasons.rows import OwnReason, ReasonGroup

_HEAD = """# Reasons

Generated from `src/twinlog/reasons/` and `src/twinlog/kafka/errors.py` by `python -m
twinlog.kafka.reasons_page docs/reasons.md`. Do not edit: a test compares.

Every error of Twinlog has a stable `reason`: in logs, in statuses, in `-o json` and in the `ErrorInfo` of
gRPC errors. Twinlog's own reasons come first, by the place where you meet them; then those of Kafka.
Twinlog retries a stopped partition after 1 s, then 2 s, up to 60 s, whatever its reason: once the cause is
gone, the partition continues without a command. States, verdicts and actions have rows, too. Each reason has
a link of its own, such as
reasons.md#RECORD_TOO_LARGE, and `twinlog explain reason RECORD_TOO_LARGE` prints its row.
"""

_KAFKA_HEAD = """
## From Kafka's brokers and clients

"Retried" says whether Twinlog retries the operation by itself; otherwise an operator must act (partitions are
retried in any case). The codes are the error codes of Kafka's protocol; a reason without a code is an error
of the client. A gRPC status without a reason of Twinlog is shown as `GRPC_` and the name of the status.

| reason | retried | what it means | Kafka's codes |
|---|---|---|---|
"""


def known_reasons() -> dict[str, dict[str, str]]:
    """Meaning and remedy of every reason, Twinlog's own before Kafka's; a word may have several."""
    rows = [reason for group in REASON_GROUPS for reason in group.reasons]
    named = {reason.name for reason in rows}
    for reason in (*CLIENT_REASONS, *KAFKA_REASONS.values()):
        remedy = "Twinlog tries again by itself" if reason.retriable else "an operator must act"
        if reason.name not in named:
            named.add(reason.name)
            rows.append(OwnReason(reason.name, reason.meaning, remedy))
    found: dict[str, list[OwnReason]] = {}
    for row in rows:
        found.setdefault(row.name, []).append(row)
    return {
        name: {"meaning": _or(each.meaning for each in told), "remedy": _or(each.remedy for each in told)}
        for name, told in found.items()
    }


def _or(texts: Iterable[str]) -> str:
    return "; or: ".join(dict.fromkeys(texts))


def render_reasons() -> str:
    """The whole page."""
    return _HEAD + "".join(map(_group, REASON_GROUPS)) + _KAFKA_HEAD + _kafka_rows()


def _group(group: ReasonGroup) -> str:
    rows = "".join(f"| {_named(each.name)} | {each.meaning} | {each.remedy} |\n" for each in group.reasons)
    return f"\n## {group.title}\n\n| reason | what it means | what to do |\n|---|---|---|\n{rows}"


def _named(reason: str) -> str:
    """With an anchor: reasons.md#RECORD_TOO_LARGE."""
    return f'<a id="{reason}"></a>`{reason}`'


def _kafka_rows() -> str:
    rows: dict[str, tuple[list[str], bool, list[int]]] = {}
    for reason in CLIENT_REASONS:
        _add(rows, reason, None)
    for code, reason in sorted(KAFKA_REASONS.items()):
        _add(rows, reason, code)
    lines = []
    for name, (meanings, retriable, codes) in sorted(rows.items()):
        again = "yes" if retriable else "no"
        lines.append(f"| {_named(name)} | {again} | {'; '.join(meanings)} | {', '.join(map(str, codes))} |")
    return "\n".join(lines) + "\n"


def _add(rows: dict[str, tuple[list[str], bool, list[int]]], reason: Reason, code: int | None) -> None:
    meanings, _, codes = rows.setdefault(reason.name, ([], reason.retriable, []))
    if reason.meaning not in meanings:
        meanings.append(reason.meaning)
    if code is not None:
        codes.append(code)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render_reasons(), encoding="utf-8")
