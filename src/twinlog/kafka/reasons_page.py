"""docs/reasons.md, generated from the table of reasons: `python -m twinlog.kafka.reasons_page
docs/reasons.md`."""

import sys
from pathlib import Path

from twinlog.kafka.errors import CLIENT_REASONS, KAFKA_REASONS, Reason

_HEAD = """# Reasons of Kafka failures

Generated from `src/twinlog/kafka/errors.py` by `python -m twinlog.kafka.reasons_page docs/reasons.md`. Do not
edit: a test compares.

Every error of Twinlog has a stable `reason`: in logs, in statuses, in `-o json` and in the `ErrorInfo` of
gRPC errors. These are the ones that come from Kafka's brokers and clients. "Again" says whether Twinlog tries
again by itself; the others wait for someone to act. The codes are those of Kafka's protocol; without one the
failure was noticed on this side.

| reason | again | what it means | Kafka's codes |
|---|---|---|---|
"""


def render_reasons() -> str:
    """The whole page."""
    rows: dict[str, tuple[list[str], bool, list[int]]] = {}
    for reason in CLIENT_REASONS:
        _add(rows, reason, None)
    for code, reason in sorted(KAFKA_REASONS.items()):
        _add(rows, reason, code)
    lines = []
    for name, (meanings, retriable, codes) in sorted(rows.items()):
        again = "yes" if retriable else "no"
        lines.append(f"| `{name}` | {again} | {'; '.join(meanings)} | {', '.join(map(str, codes))} |")
    return _HEAD + "\n".join(lines) + "\n"


def _add(rows: dict[str, tuple[list[str], bool, list[int]]], reason: Reason, code: int | None) -> None:
    meanings, _, codes = rows.setdefault(reason.name, ([], reason.retriable, []))
    if reason.meaning not in meanings:
        meanings.append(reason.meaning)
    if code is not None:
        codes.append(code)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render_reasons(), encoding="utf-8")
