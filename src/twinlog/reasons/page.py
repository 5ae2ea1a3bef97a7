"""docs/reasons.md, generated from the table of reasons: `python -m twinlog.reasons.page docs/reasons.md`."""

import sys
from pathlib import Path

from twinlog.reasons import KAFKA, OWN, Reason, ReasonGroup, shown_remedy

_HEAD = """# Reasons

Generated from `src/twinlog/reasons/reasons.txt` by `python -m twinlog.reasons.page docs/reasons.md`. Do not
edit: a test compares.

Every error of Twinlog has a stable `reason`: in logs, in statuses, in `-o json` and in the `ErrorInfo` of
gRPC errors. Twinlog's own reasons come first, by the place where you meet them; then those of Kafka.
Twinlog retries a stopped partition after 1 s, then 2 s, up to 60 s, whatever its reason: once the cause is
gone, the partition continues without a command. States, verdicts and actions have rows, too. Each reason has
a link of its own, such as
reasons.md#RECORD_TOO_LARGE, and `twinlog explain reason RECORD_TOO_LARGE` prints its row.
"""

_KAFKA_HEAD = """
## From Kafka's brokers and clients

The codes are the error codes of Kafka's protocol; a reason without a code is an error of the client. A gRPC
status without a reason of Twinlog is shown as `GRPC_` and the name of the status.

| reason | what it means | what to do | Kafka's codes |
|---|---|---|---|
"""


def render_reasons() -> str:
    """The whole page."""
    return _HEAD + "".join(map(_group, OWN)) + _KAFKA_HEAD + _kafka_rows()


def _group(group: ReasonGroup) -> str:
    rows = "".join(f"| {_named(each.name)} | {each.meaning} | {each.remedy} |\n" for each in group.reasons)
    return f"\n## {group.title}\n\n| reason | what it means | what to do |\n|---|---|---|\n{rows}"


def _named(reason: str) -> str:
    """With an anchor: reasons.md#RECORD_TOO_LARGE."""
    return f'<a id="{reason}"></a>`{reason}`'


def _kafka_rows() -> str:
    """A row for each name."""
    rows: dict[str, list[Reason]] = {}
    for reason in KAFKA.reasons:
        rows.setdefault(reason.name, []).append(reason)
    return "".join(
        f"| {_named(name)} | {'; '.join(each.meaning for each in told)} | {shown_remedy(told[0])}"
        f" | {', '.join(str(code) for each in told for code in each.codes)} |\n"
        for name, told in rows.items()
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render_reasons(), encoding="utf-8")
