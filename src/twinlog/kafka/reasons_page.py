"""docs/reasons.md, generated from the tables of reasons: `python -m twinlog.kafka.reasons_page
docs/reasons.md`."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

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

The codes are the error codes of Kafka's protocol; a reason without a code is an error of the client. A gRPC
status without a reason of Twinlog is shown as `GRPC_` and the name of the status.

| reason | what it means | what to do | Kafka's codes |
|---|---|---|---|
"""
_AGAIN = "Twinlog tries again by itself"
_REPORT = "restart the service, and report it with its log if it comes again"
_MISSING_RIGHT = (
    "`twinlog preflight` names the right that is missing; grant it. If that changes nothing, remove the DENY"
    " that takes it (`kafka-acls.sh --list`)"
)
REMEDIES: Final = {
    "ANSWER_TOO_LARGE": "skip the batch (`twinlog positions set`), and lower the topic's `max.message.bytes`",
    "AUTHENTICATION_FAILED": "correct the user and the secret in the file (`twinlog preflight` tries them)",
    "CLUSTER_UNAUTHORIZED": _MISSING_RIGHT,
    "CODEC_REFUSED": "set another `compression.type` of the topic",
    "CONFIG_REFUSED": "correct the value that the message names, or leave it out with"
    " `config.properties.exclude`",
    "CORRUPT_BATCH": "let the source's brokers repair their disk or network, or skip the batch with `twinlog"
    " positions set`",
    "GROUP_ACTIVE": "stop the consumers of the group",
    "GROUP_INVALID": "choose another name of the group",
    "GROUP_UNAUTHORIZED": _MISSING_RIGHT,
    "GROUP_UNKNOWN": "correct the name; a group without members and offsets is deleted by its broker",
    "INVALID_REQUEST": _REPORT,
    "KAFKA_REFUSED": "see the detail in the message, and the broker's log",
    "LOGIN_TOKEN_REFUSED": "correct `sasl.oauthbearer.*` and `sasl.jaas.config`",
    "NO_AUTHORIZER": "nothing, or `sync.topic.acls.enabled = false`",
    "OFFSET_METADATA_TOO_LARGE": "raise `offset.metadata.max.bytes` of the brokers",
    "OFFSET_OUT_OF_RANGE": "choose an offset that the log has (`kafka-get-offsets.sh`)",
    "PARTITIONS_INVALID": "nothing if the topic has as many partitions; else add them by hand",
    "POLICY_VIOLATION": "change what the message names, or the policy of the cluster",
    "PRODUCER_FENCED": "nothing if another process of the service runs; else restart the service",
    "PRODUCER_STATE_LOST": _REPORT,
    "RECORD_INVALID": "give the record a key, or the topic another `cleanup.policy`",
    "RECORD_TOO_LARGE": "raise `max.message.bytes` of the source topic, which the copy takes over",
    "REPLICATION_FACTOR_INVALID": "set `replication.factor` (of internal topics: `….replication.factor`) to"
    " the number of brokers at most, or start the brokers that are missing",
    "SASL_MECHANISM_REFUSED": "set a `sasl.mechanism` that the listener offers",
    "SESSION_TIMEOUT_REFUSED": "set `session.timeout.ms` within `group.min.session.timeout.ms` and"
    " `group.max.session.timeout.ms` of the brokers",
    "SNAPSHOT_UNKNOWN": _REPORT,
    "TIMESTAMP_REFUSED": "raise `message.timestamp.before.max.ms` or `message.timestamp.after.max.ms` of the"
    " topic",
    "TLS_UNTRUSTED": "add the authority of the broker's certificate to the truststore",
    "TOPIC_DELETION_DISABLED": "set `delete.topic.enable = true` on the brokers",
    "TOPIC_EXISTS": "delete the topic first, or use it as it is",
    "TOPIC_INVALID": "give the copy another name with `twinlog.topic.rename`",
    "TOPIC_UNAUTHORIZED": _MISSING_RIGHT,
    "TOPIC_UNKNOWN": "look whether the topic exists and the principal has DESCRIBE on it: `kafka-topics.sh"
    " --describe --topic NAME`; `twinlog explain topic NAME` says what the flow makes of it",
    "TRANSACTION_INVALID": _REPORT,
    "TRANSACTION_TIMEOUT_REFUSED": "raise `transaction.max.timeout.ms` of the brokers",
    "TRANSACTION_UNAUTHORIZED": _MISSING_RIGHT,
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": "set the topic's `message.format.version` to 0.11 or newer",
    "UNSUPPORTED_VERSION": "update the brokers (docs/compatibility.md)",
}
"""What to do about what Twinlog does not try again, by reason."""


def known_reasons() -> dict[str, dict[str, str]]:
    """Meaning and remedy of every reason, Twinlog's own before Kafka's; a word may have several."""
    rows = [reason for group in REASON_GROUPS for reason in group.reasons]
    named = {reason.name for reason in rows}
    for reason in (*CLIENT_REASONS, *KAFKA_REASONS.values()):
        if reason.name not in named:
            named.add(reason.name)
            rows.append(OwnReason(reason.name, reason.meaning, _remedy(reason)))
    found: dict[str, list[OwnReason]] = {}
    for row in rows:
        found.setdefault(row.name, []).append(row)
    return {
        name: {"meaning": _or(each.meaning for each in told), "remedy": _or(each.remedy for each in told)}
        for name, told in found.items()
    }


def _remedy(reason: Reason) -> str:
    return _AGAIN if reason.retriable else REMEDIES[reason.name]


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
    rows: dict[str, tuple[str, dict[str, None], list[str]]] = {}
    coded = [(str(code), reason) for code, reason in sorted(KAFKA_REASONS.items())]
    for code, reason in [*(("", reason) for reason in CLIENT_REASONS), *coded]:
        _, meanings, codes = rows.setdefault(reason.name, (_remedy(reason), {}, []))
        meanings[reason.meaning] = None
        codes += [code] if code else []
    return "".join(
        f"| {_named(name)} | {'; '.join(meanings)} | {remedy} | {', '.join(codes)} |\n"
        for name, (remedy, meanings, codes) in sorted(rows.items())
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render_reasons(), encoding="utf-8")
