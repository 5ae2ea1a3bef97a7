"""The command that helps after a failure; every error message ends with one. Pure.

It is chosen by the reason. If the error names flow, topic, group or state file, the command does too.
`<A->B>`, `<TOPIC>`, `<GROUP>`, `<STATE_FILE>` and `<FILE>` (of properties) are placeholders for the rest.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Final

from twinlog.reasons import REASON_GROUPS

_STATUS: Final = "twinlog status"
_PARTITIONS: Final = "twinlog partitions {flow} --trouble"
_EXPLAIN_TOPIC: Final = "twinlog explain topic {topic}"
_EXPLAIN_GROUP: Final = "twinlog explain group {group}"
_GROUPS: Final = "twinlog groups {flow}"
_GAPS: Final = "twinlog gaps {flow}"
_PREFLIGHT: Final = "twinlog preflight {file}"
_VERIFY: Final = "twinlog verify {flow}"
_HELP: Final = "{command} --help"
_BUNDLE: Final = "twinlog debug bundle"
_LOCAL: Final = "twinlog local status"
_MOVE: Final = "twinlog failover status {flow}"

_OF_GROUP: Final[Mapping[str, str]] = {
    "Partitions of a flow": _PARTITIONS,
    "Offsets of copies": _EXPLAIN_TOPIC,
    "Gaps": _GAPS,
    "Flows": _STATUS,
    "Topics": _EXPLAIN_TOPIC,
    "Consumer groups": _GROUPS,
    "Ranges that were not compared": _VERIFY,
    "Commands and calls": _HELP,
    "Processes, files, and the inside of the source service": _STATUS,
}
"""By the title of the reason's table, up to its parenthesis."""

_OF_REASON: Final[Mapping[str, str]] = {
    "PAUSED_BY_OPERATOR": "twinlog resume {flow}",
    "THROTTLED": "twinlog throttle {flow}",
    "DATA_LOSS": "twinlog positions set {flow} --topic {topic} --to earliest --dry-run",
    "NO_POSITION": "twinlog positions set {flow} --topic {topic} --to earliest --dry-run",
    "POSITION_UNREADABLE": "twinlog positions set {flow} --topic {topic} --to earliest --dry-run",
    "FOREIGN_WRITE": _VERIFY,
    "RIGHTS_MISSING": _PREFLIGHT,
    "LOOP": _PREFLIGHT,
    "SAME_CLUSTER": _PREFLIGHT,
    "TOPICS_WAITING": "twinlog plan {flow}",
    "NO_TOPICS": "twinlog explain topic {topic}",
    "NO_TOPICS_SELECTED": "twinlog rules get {flow}",
    "CHANGES_REFUSED": "twinlog plan {flow}",
    "PLAN_PENDING": "twinlog plan {flow}",
    "REGISTRY_UNREADABLE": _BUNDLE,
    "HEARTBEAT_MISSING": "twinlog topology",
    "PATH_UNKNOWN": "twinlog topology",
    "HEARTBEATS_DISABLED": "twinlog topology",
    "REPLICATION_FACTOR_UNSATISFIABLE": "twinlog plan {flow}",
    "MIN_ISR_ABOVE_REPLICATION_FACTOR": "twinlog plan {flow}",
    "CONFIGS_UNAUTHORIZED": _PREFLIGHT,
    "TARGET_NOT_VISIBLE": _PREFLIGHT,
    "FAILED_OVER": _MOVE,
    "NOT_READY": _STATUS,
    "PAST_END": _EXPLAIN_GROUP,
    "UP_TO_DATE": _EXPLAIN_GROUP,
    "GROUPS_NOT_TRANSLATED": _GROUPS,
    "MOVE_BLOCKED": "twinlog failover plan {flow}",
    "MOVE_IN_PROGRESS": "twinlog failover attach {flow}",
    "BACKLOG_NOT_COPIED": _PARTITIONS,
    "MOVE_CANCELLED": _MOVE,
    "NO_MOVE": _MOVE,
    "NOTHING_TO_ABORT": _MOVE,
    "FENCE_NOT_OURS": _MOVE,
    "NOT_VERIFIED": "twinlog failover run {flow}",
    "STOPPING": _STATUS,
    "SOURCE_UNREADABLE": _STATUS,
    "TARGET_UNREADABLE": _STATUS,
    "KNOWN_GAP": _GAPS,
    "LOST": _GAPS,
    "NOT_COPIED_YET": _PARTITIONS,
    "TARGET_MISSING": _EXPLAIN_TOPIC,
    "FLOW_UNKNOWN": _STATUS,
    "PARTITION_UNKNOWN": _EXPLAIN_TOPIC,
    "NOT_REPAIRED": _VERIFY,
    "NOT_RUNNING": _PREFLIGHT,
    "NOT_PAUSED": "twinlog pause",
    "GAP_UNKNOWN": "twinlog gaps {flow} --all",
    "WRONG_STATE": _STATUS,
    "FLOW_NOT_READY": _STATUS,
    "POSITION_NOT_MOVED": "twinlog positions get {flow}",
    "POSITION_BEING_SET": "twinlog positions get {flow}",
    "POSITION_UNCERTAIN": "twinlog positions get {flow}",
    "OFFSETS_PRESERVED": "twinlog positions get {flow}",
    "PLAN_UNKNOWN": "twinlog plan {flow}",
    "PLAN_STALE": "twinlog plan {flow}",
    "RULES_CHANGED": "twinlog rules get {flow}",
    "CONFLICT": _STATUS,
    "NOT_OPEN": _BUNDLE,
    "UNIMPLEMENTED": "twinlog --version",
    "PEER_UNAVAILABLE": _STATUS,
    "PEER_TIMEOUT": _STATUS,
    "WATCH_ENDED": _STATUS,
    "WATCH_SILENT": _STATUS,
    "TLS_FAILED": _STATUS,
    "EXHAUSTED": _STATUS,
    "TOO_MANY_CALLS": _STATUS,
    "TOO_MANY_WATCHERS": _STATUS,
    "CALL_TOO_SHORT": _STATUS,
    "STATE_FILE_DAMAGED": "twinlog state import {flow} <STATE_FILE> --dry-run",
    "STATE_FILE_NEWER": "twinlog --version",
    "STATE_PRESENT": _STATUS,
    "OTHER_CLUSTER": _PREFLIGHT,
    "COPY_MISSING": _EXPLAIN_TOPIC,
    "COPY_UNSTABLE": "twinlog state import {flow} {state_file} --dry-run",
    "POSITION_NOT_DERIVABLE": "twinlog state import {flow} {state_file} --allow-repeats --dry-run",
    "MOVE_UNFINISHED": "twinlog state import {flow} {state_file} --without-moves --dry-run",
    "IMPORT_UNFINISHED": "twinlog state import {flow} {state_file} --dry-run",
    "INTERNAL": _BUNDLE,
    "LOOP_EXITED": _BUNDLE,
    "WIRE_FORMAT": _BUNDLE,
    "WIRE_VERSION": "twinlog --version",
    "INSECURE_LISTEN": _HELP,
    "ADDRESS_IN_USE": _STATUS,
    "RUNS_ALREADY": _STATUS,
    "CERTIFICATE_UNUSABLE": _PREFLIGHT,
    "TOKENS_UNUSABLE": _PREFLIGHT,
    "TOKEN_UNUSABLE": _PREFLIGHT,
    "TOKEN_NEEDS_TLS": _PREFLIGHT,
    "CACHE_UNWRITABLE": "twinlog local --help",
    "FETCH_FAILED": "twinlog local --help",
    "ARTIFACTS_DAMAGED": "twinlog local --help",
    "JAVA_NOT_FOUND": "twinlog local --help",
    "PROCESS_FAILED": _LOCAL,
    "CLUSTER_RUNS": _LOCAL,
    "STILL_RUNS": _LOCAL,
    "OWNER_SILENT": _LOCAL,
    "DEMO_STUCK": "twinlog demo --help",
}

_FROM_KAFKA: Final = _PREFLIGHT
"""It checks every cluster and right of the file, and changes nothing."""

_BY_REASON: Final[Mapping[str, str]] = {
    reason.name: _OF_GROUP[group.title.partition(" (")[0]]
    for group in REASON_GROUPS
    for reason in group.reasons
} | dict(_OF_REASON)

_PLACES: Final = {
    "flow": "<A->B>",
    "topic": "<TOPIC>",
    "group": "<GROUP>",
    "file": "<FILE>",
    "state_file": "<STATE_FILE>",
}


def next_command(
    reason: str,
    metadata: Mapping[str, str],
    *,
    command: str = "twinlog",
    file: str = "",
) -> str:
    """The command that helps after a failure. `command` is the one that failed, `file` the properties file
    that it was given.

    >>> next_command("PAUSED_BY_OPERATOR", {"flow": "A->B"})
    "twinlog resume 'A->B'"
    >>> next_command("INVALID_CONFIG", {}, command="twinlog partitions")
    'twinlog partitions --help'
    >>> next_command("MOVE_BLOCKED", {"flow": "A->B"}, command="twinlog failback run")
    "twinlog failback plan 'A->B'"
    """
    template = _template(reason, metadata, file)
    if command.startswith("twinlog failback"):
        template = template.replace("twinlog failover", "twinlog failback")
    named = {"command": command}
    for name, place in _PLACES.items():
        value = file if name == "file" else metadata.get(name, "")
        named[name] = shlex.quote(value) if value else place
    return template.format(**named)


def _template(reason: str, metadata: Mapping[str, str], file: str) -> str:
    if reason.startswith("GRPC_"):
        return _STATUS
    if reason == "INVALID_CONFIG" and file and not _is_of_the_command_line(metadata.get("key", "")):
        return _PREFLIGHT
    return _BY_REASON.get(reason, _FROM_KAFKA)


def _is_of_the_command_line(key: str) -> bool:
    """Options and arguments are named `--config`, `FLOW`."""
    return re.fullmatch(r"--.*|[A-Z]+", key) is not None
