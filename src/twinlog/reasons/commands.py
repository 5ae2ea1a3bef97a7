"""Reasons of commands and calls."""

from typing import Final

from twinlog.reasons.rows import NOTHING, READ_THE_MESSAGE, RUN_AGAIN, OwnReason, ReasonGroup

COMMANDS: Final = ReasonGroup(
    "Commands and calls",
    (
        OwnReason("INVALID_CONFIG", "the configuration or the request is wrong", READ_THE_MESSAGE),
        OwnReason(
            "REFERENCE_REFUSED",
            "the value of a rule that is changed while a flow runs contains `${`: references are not"
            " allowed there",
            "write the reference to `config.providers` into the properties file, or the value itself",
        ),
        OwnReason("NOT_FOUND", "the requested object does not exist", READ_THE_MESSAGE),
        OwnReason(
            "FLOW_UNKNOWN", "this process has no such flow", "the message lists the flows of this process"
        ),
        OwnReason(
            "PARTITION_UNKNOWN",
            "the flow does not copy this topic or partition now",
            "nothing if the topic is new: it is found with the next refresh"
            " (`refresh.topics.interval.seconds`); else `twinlog explain topic` says why",
        ),
        OwnReason(
            "NOT_REPAIRED",
            "`twinlog repair` did not change a partition: only a new copy can repair it, or the report is"
            " old",
            "run the commands that it prints, or `twinlog verify` again",
        ),
        OwnReason(
            "NOT_RUNNING",
            "the services that `twinlog copy` runs did not start, or ended unexpectedly",
            READ_THE_MESSAGE,
        ),
        OwnReason(
            "NOT_PAUSED",
            "there is no pause of exactly this flow, topic or partition",
            "`twinlog pause` lists the pauses",
        ),
        OwnReason("GAP_UNKNOWN", "no such gap is in the ledger", "`twinlog gaps --all` lists them"),
        OwnReason("WRONG_STATE", "the object is in a state that does not allow this", READ_THE_MESSAGE),
        OwnReason("NOT_OPEN", "a connection is used before it was opened: a bug", "report it"),
        OwnReason(
            "FLOW_NOT_READY",
            "this process does not copy the flow now",
            "try again; see `twinlog status`",
        ),
        OwnReason(
            "POSITION_NOT_MOVED",
            "the flow's tasks did not end in time, so nothing was written; the command was withdrawn",
            "try again when the target accepts records: `twinlog status`",
        ),
        OwnReason(
            "OFFSETS_PRESERVED",
            "`twinlog positions set` to an earlier offset: the copy already holds these records, at the"
            " source's offsets",
            "replace the target topic (docs/offsets.md), and it is copied again; or name the topic in"
            " `twinlog.offsets.translated.topics`, restart, and set the position",
        ),
        OwnReason(
            "POSITION_UNCERTAIN",
            "it is unknown whether a position was moved: the target did not answer while it was stored",
            "`twinlog positions get`, and set it again if necessary",
        ),
        OwnReason("INVALID_SCOPE", "this command does not support the scope", READ_THE_MESSAGE),
        OwnReason("INVALID_LIMIT", "a limit must be 0 (none) or more bytes per second", "give another one"),
        OwnReason(
            "INVALID_TARGET",
            "the target of the move is not valid",
            "give an offset, earliest, latest or a time",
        ),
        OwnReason("INVALID_GROUP", "this is not a valid id of a consumer group", READ_THE_MESSAGE),
        OwnReason("INVALID_QUERY", "the request is incomplete", READ_THE_MESSAGE),
        OwnReason("INVALID_WAIT", "the time to wait is out of range", READ_THE_MESSAGE),
        OwnReason(
            "INVALID_PAGE_TOKEN",
            "the page token is not from this service, or from an answer that it no longer keeps",
            "begin with the first page",
        ),
        OwnReason("INVALID_PAGE_SIZE", "a page size is negative", "give 0 (as many as fit) or more"),
        OwnReason("PLAN_UNKNOWN", "there is no plan of this id, or it is too old", "`twinlog plan` again"),
        OwnReason(
            "PLAN_STALE",
            "the clusters or the rules have changed since the plan was made",
            "`twinlog plan` again",
        ),
        OwnReason("RULES_CHANGED", "the rules have changed since they were read", "read them again"),
        OwnReason("CONFLICT", "the state changed since it was read", RUN_AGAIN),
        OwnReason("EXHAUSTED", "too many requests at once", "try again later"),
        OwnReason("TOO_MANY_QUERIES", "one request asks for too many offsets", "ask for fewer"),
        OwnReason("TOO_MANY_WATCHERS", "too many watches are open", "close some"),
        OwnReason(
            "UNIMPLEMENTED",
            "the service has an older version and does not know this call",
            "use the same version for both",
        ),
        OwnReason(
            "PEER_UNAVAILABLE",
            "a service of Twinlog cannot be reached",
            "check that it runs, and its endpoint",
        ),
        OwnReason(
            "TLS_FAILED",
            "the identity of a service cannot be verified: its certificate has expired, is for another"
            " host or from an unknown CA, or it does not use TLS",
            READ_THE_MESSAGE,
        ),
        OwnReason(
            "NOT_AUTHENTICATED",
            "the call has no valid credentials",
            "use a certificate or a token: docs/security.md",
        ),
        OwnReason(
            "NOT_AUTHORIZED",
            "the caller's role does not allow the call",
            "name the caller in `twinlog.auth.operators` or `twinlog.auth.admins`, or ask an operator or an"
            " admin",
        ),
        OwnReason(
            "WRONG_PORT", "a task called the port for operators, or an operator the port for tasks", "nothing"
        ),
        OwnReason("TOKEN_UNKNOWN", "the token is not known: it was revoked, or is wrong", "get a new one"),
        OwnReason("TOKEN_EXPIRED", "a token has expired", "get a new one"),
        OwnReason(
            "TOKEN_INVALID",
            "the token is not a bearer token, or not one of the OpenID provider for Twinlog",
            READ_THE_MESSAGE,
        ),
        OwnReason(
            "TOKEN_SERVER_UNAVAILABLE",
            "the keys of the OpenID provider could not be read for a day, or never since the start",
            "check that the provider can be reached from the service; certificates and tokens of the file"
            " still work",
        ),
        OwnReason(
            "REQUEST_MISSING",
            "a call sent no request within 10 seconds",
            "check the network between the client and the service",
        ),
        OwnReason(
            "REPLICA_UNKNOWN",
            "`twinlog move`: no process that can own the flow is called so, or more than one is",
            "name one of those in the message by HOST:PORT",
        ),
        OwnReason(
            "REPLICA_OWNS",
            "`twinlog move`: this process owns the flow already",
            "nothing",
        ),
        OwnReason(
            "REQUEST_UNREADABLE",
            "a request does not match the message type of its method",
            "use Twinlog's proto files",
        ),
        OwnReason("TOO_MANY_CALLS", "a caller has too many calls open", "end some of them"),
        OwnReason(
            "CALL_TOO_SHORT",
            "the answer takes longer than the caller waits; both clusters answer",
            "request less at once, or try again later",
        ),
        OwnReason("PEER_TIMEOUT", "a service of Twinlog did not answer in time", "see its log"),
        OwnReason("WATCH_ENDED", "a service ended a watch stream; the caller opens it again", NOTHING),
        OwnReason(
            "WATCH_SILENT", "a watch stream was silent for too long; the caller opens it again", NOTHING
        ),
    ),
)
