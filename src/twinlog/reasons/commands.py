"""Reasons of commands and calls."""

from typing import Final

from twinlog.reasons.rows import NOTHING, READ_THE_MESSAGE, RUN_AGAIN, OwnReason, ReasonGroup

COMMANDS: Final = ReasonGroup(
    "Commands and calls",
    (
        OwnReason("INVALID_CONFIG", "the configuration or the request is wrong", READ_THE_MESSAGE),
        OwnReason(
            "REFERENCE_REFUSED",
            "a rule that is changed while a flow runs holds `${`: such values are taken literally",
            "write the reference to `config.providers` into the properties file, or the value itself",
        ),
        OwnReason("NOT_FOUND", "there is no such thing", READ_THE_MESSAGE),
        OwnReason("FLOW_UNKNOWN", "this process has no such flow", "the message lists those it has"),
        OwnReason(
            "PARTITION_UNKNOWN", "the flow does not copy this topic or partition", "`twinlog partitions`"
        ),
        OwnReason(
            "NOT_REPAIRED",
            "`twinlog repair` left a partition alone: only a new copy heals it, or the report is old",
            "the commands that it prints; or `twinlog verify` again",
        ),
        OwnReason(
            "NOT_RUNNING",
            "the services that `twinlog copy` runs did not start, or ended by themselves",
            READ_THE_MESSAGE,
        ),
        OwnReason(
            "NOT_PAUSED",
            "there is no pause of exactly this flow, topic or partition",
            "`twinlog pause` lists the pauses",
        ),
        OwnReason("GAP_UNKNOWN", "no such gap is in the ledger", "`twinlog gaps --all` lists them"),
        OwnReason("WRONG_STATE", "it is in a state that does not allow this", READ_THE_MESSAGE),
        OwnReason("NOT_OPEN", "a connection is used before it was opened: a bug", "report it"),
        OwnReason(
            "FLOW_NOT_READY",
            "this process does not copy the flow at this moment",
            "try again; see `twinlog status`",
        ),
        OwnReason(
            "POSITION_NOT_MOVED",
            "the target did not take a moved position in time; the command was withdrawn",
            "try again when the target takes records: `twinlog status`",
        ),
        OwnReason(
            "POSITION_BEING_SET",
            "`twinlog positions set` moves it, or failed and is being withdrawn",
            "nothing; see whether the target takes records if it stays",
        ),
        OwnReason(
            "OFFSETS_PRESERVED",
            "`twinlog positions set` back: the copy holds the records already, at the source's offsets",
            "replace the target topic (docs/offsets.md), and it is copied again; or name the topic in"
            " `twinlog.offsets.translated.topics`, restart, and set the position",
        ),
        OwnReason(
            "POSITION_UNCERTAIN",
            "it is not known whether a position was moved: its task ended in between, or did not answer",
            "`twinlog positions get`, and set it again if need be",
        ),
        OwnReason("INVALID_SCOPE", "the scope is not one that this command takes", READ_THE_MESSAGE),
        OwnReason("INVALID_LIMIT", "a limit is 0 (none) or more bytes per second", "give another one"),
        OwnReason("INVALID_TARGET", "no place to move positions to", "an offset, earliest, latest or a time"),
        OwnReason("INVALID_GROUP", "this is not the name of a consumer group", READ_THE_MESSAGE),
        OwnReason("INVALID_QUERY", "the question is not complete", READ_THE_MESSAGE),
        OwnReason("INVALID_WAIT", "the time to wait is out of range", READ_THE_MESSAGE),
        OwnReason(
            "INVALID_PAGE_TOKEN",
            "the page token is not one of this service, or of an answer that is no longer kept",
            "begin with the first page",
        ),
        OwnReason("INVALID_PAGE_SIZE", "a page size is negative", "give 0 (as many as fit) or more"),
        OwnReason(
            "INVALID_RESUME_TOKEN",
            "the resume token is not one of this service",
            "open a new watch without one",
        ),
        OwnReason(
            "RESUME_TOKEN_EXPIRED",
            "the service no longer keeps the changes since the token",
            "open a new watch without one",
        ),
        OwnReason("PLAN_UNKNOWN", "there is no plan of this id, or it is too old", "`twinlog plan` again"),
        OwnReason(
            "PLAN_STALE",
            "the clusters or the rules have changed since the plan was made",
            "`twinlog plan` again",
        ),
        OwnReason("RULES_CHANGED", "the rules have changed since they were read", "read them again"),
        OwnReason("CONFLICT", "the state changed since it was read", RUN_AGAIN),
        OwnReason("EXHAUSTED", "too many requests at once", "try again later"),
        OwnReason("TOO_MANY_QUERIES", "too many offsets are asked for at once", "ask for fewer"),
        OwnReason("TOO_MANY_WATCHERS", "too many watches are open", "close some"),
        OwnReason("UNIMPLEMENTED", "the service is of an older version", "bring both to one version"),
        OwnReason(
            "PEER_UNAVAILABLE",
            "a service of Twinlog cannot be reached",
            "see whether it runs, and its endpoint",
        ),
        OwnReason(
            "TLS_FAILED",
            "a service is not taken for what it says: its certificate has expired, is for another host or of"
            " a CA that is not known, or it speaks no TLS",
            READ_THE_MESSAGE,
        ),
        OwnReason(
            "NOT_AUTHENTICATED",
            "the call carries no credentials",
            "show a certificate or a token: docs/security.md",
        ),
        OwnReason(
            "NOT_AUTHORIZED",
            "the caller's role does not allow the call",
            "name the caller in `twinlog.auth.operators` or `twinlog.auth.admins`, or ask somebody who is",
        ),
        OwnReason(
            "WRONG_PORT", "a call of tasks came to the port of operators, or the other way round", NOTHING
        ),
        OwnReason("TOKEN_UNKNOWN", "a token is not known: it was revoked, or is wrong", "get a new one"),
        OwnReason("TOKEN_EXPIRED", "a token has expired", "get a new one"),
        OwnReason(
            "TOKEN_INVALID",
            "a token is no bearer token, or not one of the provider's for Twinlog",
            READ_THE_MESSAGE,
        ),
        OwnReason(
            "TOKEN_SERVER_UNAVAILABLE",
            "the keys of the OpenID provider were never read, or a day ago",
            "see whether it is up and reached from here; certificates and tokens of the file work",
        ),
        OwnReason("TOO_MANY_CALLS", "a caller has too many calls open", "end some of them"),
        OwnReason(
            "CALL_TOO_SHORT",
            "an answer takes longer than its caller waits; both clusters answer",
            "ask for less at once, or again later",
        ),
        OwnReason("PEER_TIMEOUT", "a service of Twinlog did not answer in time", "see its log"),
        OwnReason("WATCH_ENDED", "a service ended a watch; it is opened again", NOTHING),
        OwnReason("WATCH_SILENT", "a watch was silent for too long; it is opened again", NOTHING),
    ),
)
