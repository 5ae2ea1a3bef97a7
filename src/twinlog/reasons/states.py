"""The words of columns and fields that are called state, verdict, action or kind."""

from typing import Final

from twinlog.reasons.rows import ReasonGroup, reasons

STATES: Final = ReasonGroup(
    "States",
    reasons("""
        RUNNING: the partition is copied; of a move: it goes on => nothing
        PAUSED: the partition was paused by `twinlog pause` => `twinlog pause` lists the pauses, `twinlog
            resume` ends one
        BACKOFF: the partition failed, and a retry may help => nothing: the retry follows soon; its reason
            says more
        FAULTED: the partition failed, and an operator has to act; Twinlog keeps retrying => see its reason
        WAITING: the partition has no task, or the topic is selected and not copied yet => see its reason
        STALLED: the partition has records to copy, and its position has not moved for
            `twinlog.stalled.seconds` => see what it waits for in its reason
        STARTED: the step has begun => nothing
        PROGRESS: the step goes on => nothing
        DONE: the step, or the whole move, has ended => nothing
        SKIPPED: the step was not needed, or not possible; of a record: a transform failed for it, and it is
            not copied => see the message
        FAILED: the call ended with an error => see its reason
        SETTLED: configsync keeps the topics of the flow in step => nothing
        DEGRADED: the last look of configsync at the clusters failed; the known topics stay valid => see its
            reason
        READY: the topic is copied, or may be => nothing
        ALIVE: heartbeats arrive on the target => nothing
        SILENT: no heartbeat has arrived for some time; of producers: nobody has written for a minute => see
            the state of the flow's partitions
        WRITE: of producers: they write; of a move: the offset is committed => nothing
        UNKNOWN: it is not known now: the cluster or the service does not tell => see the service's reason
        UNTOLD: no service tells of the producers => start the source service
        SERVING: the service answers => nothing
        DOWN: the service does not answer => start it, or correct its address
        LOG_ENDS: the delay is measured by the ends of the logs, because no heartbeats can be written =>
            nothing
        RAW: batches are copied as they are => nothing
        RECODE: batches are decoded and encoded again => nothing
        DROP: nothing of the batch is copied => nothing
        DRAINED: every record is copied => nothing
        DRAINING: the lag becomes smaller => nothing
        LOSING: the lag grows => `twinlog partitions` shows which partitions lag
        STEADY: the lag does not change => `twinlog partitions` shows which partitions lag
        GO: nothing stands against the move => nothing
        WAIT: what stands against the move ends by itself, or when consumers stop => wait, or stop them
        NO_GO: somebody has to act before the move => see the lines of the plan
        HOST_UNKNOWN: the live page was asked under a host name that is not its own => `twinlog ui
            --host-name`
        OTHER_SITE: a page of another site asked the live page => open the page itself
    """),
)  # fmt: skip

IN_FORCE: Final = ReasonGroup(
    "What is in force (`twinlog status`)",
    reasons("""
        PAUSE: somebody paused a flow, topic or partition => `twinlog resume`
        LIMIT: somebody limits the bytes per second => `twinlog throttle 'A->B' none`
        DELAY: records are copied some time after they were written => the flow's `twinlog.delay.*`
        TRANSFORM: what transforms have left out => the flow's `twinlog.transform.*`
        RULE: a rule differs from the file => `twinlog rules diff`
        MANUAL: changes on the target are only planned => `twinlog plan`
        GAPS: records were lost that nobody has acknowledged => `twinlog gaps`
        FENCE: a move keeps writers from topics => `twinlog failback run`, or `give-up`
        HELD: deletions of groups are not carried out => see the message
        MOVE: a failover or failback has not ended => `twinlog failover status`
        MOVED: groups work on the target => `twinlog failback run`, once the applications use the source again
        FOREIGN: somebody else wrote into a copy, or created the ACL on the target => `twinlog foreign`
        DIFFERS: a copy differs from its source => `twinlog verify`
        OFFSETS: copies have lost the source's offsets => `twinlog explain topic`
        SPARK_UI: Spark's web UI is open => nothing
    """),
)  # fmt: skip

PLACES: Final = ReasonGroup(
    "Verdicts on offsets of groups, and what becomes of them (`twinlog groups`, `twinlog failover plan`)",
    reasons("""
        PRESERVED: the offset is the same there: the copy has the source's offsets => nothing
        EXACT: the very record that the group reads next, compared on both sides => nothing
        FLOOR: by MirrorMaker 2's rule: never ahead, and some records may be read again => nothing
        MAPPED: as FLOOR, where Spark changes the records => nothing
        BEFORE_START: the log there begins after the offset: the group continues at its first record => if
            the plan counts records that it has not read, read them first, or `--accept-loss`
        SHARED_COPY: another flow writes the copy, too: offsets of one source have no place in it => keep the
            copies apart
        NO_SYNC: nothing of the partition has been copied yet, or the copy has lost what was => wait for the
            copy
        TOO_OLD: the offset lies before everything that is known to have been copied => let the group read on,
            or accept that its consumers begin where their `auto.offset.reset` says (`--accept-loss`)
        ACTIVE_ON_TARGET: the group has members on the target, which own its offsets there => nothing
        ALREADY_THERE: the offset is committed there already => nothing
        KEEP_AHEAD: the group's own offset there is larger; it is not moved back => see the note of the plan
        SKIP_ACTIVE_BEFORE: the group has members on the cluster that it leaves => stop its consumers, or
            `--include-active`
        SKIP_ACTIVE_THERE: the group has members on the cluster that it moves to => stop them, if the group is
            to be moved
        SKIP_NO_OFFSET: there is no translated offset => see the verdict
        SKIP_NO_PARTITION: the cluster that it moves to has no such partition yet => `twinlog explain topic`
            says why
        SKIP_UNREAD: the group would skip records that only the cluster has that it leaves => read them first,
            or `--accept-loss`
        SKIP_REFUSED: the cluster refused the commit => see the message, and run it again
    """),
)  # fmt: skip

FINDINGS: Final = ReasonGroup(
    "Verdicts on topics, ACLs, records and exported state",
    reasons("""
        REPLICATED: the topic is copied => nothing
        NO_SUCH_TOPIC: the cluster has no such topic => see its name
        COUNTERPART: the topic is the copy of a topic of the source => nothing
        NO_COUNTERPART: no topic of the source is copied into it => nothing
        IN_STEP: the ACL is on both clusters => nothing
        MISSING: the source has the record or ACL, and the target lacks it => for records `twinlog repair`
        LEFT_OUT: the ACL is not to be synchronized; of exported state: the copy is gone and begins again =>
            nothing
        SURPLUS: Twinlog created the ACL, and the source no longer has it => nothing
        EQUAL: everything that both clusters hold is equal => nothing
        DIFFERENT: at least one record differs => `twinlog repair` says what helps
        INCOMPLETE: nothing compared differs, but something was not compared => see the reason of the range
        DUPLICATE: the copy has the record once more => `twinlog repair` says what helps
        CHANGED: the record is at its place with other content => `twinlog repair` says what helps
        ORDER: the copy has the record at another place => `twinlog repair` says what helps
        COPY_FROM: everything from this offset is copied again, without duplicates => run the command
        COPY_AGAIN: as COPY_FROM, in a compacted copy: with duplicates until compaction => run the command
        NEW_COPY: only a new copy is equal => run the commands
        AS_EXPORTED: the position is as it was exported => nothing
        DERIVED: more was copied after the export: the position is from both logs => nothing
        REPEATED: what was copied after the export is copied again => nothing
    """),
)  # fmt: skip

LANES: Final = ReasonGroup(
    "Why batches were opened, or not copied, and who owns a flow (metrics, `twinlog move`)",
    reasons("""
        UNOPENED: the batch was copied without being opened => nothing
        OLD_MAGIC: opened: its format is v0 or v1, which brokers no longer accept => nothing
        LOG_APPEND_TIME: opened: its timestamps are the source broker's => nothing
        COMPACTION_HOLES: opened: compaction has removed records of it => nothing
        STARTS_BEFORE_POSITION: opened: its first records are already copied => nothing
        TOO_LARGE_FOR_TARGET: opened and split: it is above the target topic's `max.message.bytes` => nothing
        OTHER_CODEC: opened: the target topic's `compression.type` is another codec => nothing
        SMALL_BATCHES: opened: many small batches of a backlog are packed together => nothing
        OWN_RECORDS: made by Twinlog, not copied => nothing
        CONTROL: not copied: the marker of a transaction => nothing
        ABORTED: not copied: of an aborted transaction => nothing
        BEHIND_POSITION: not copied: all of it is copied already => nothing
        EMPTY: not copied: compaction has left its header only => nothing
        ECHO: not copied: the target has these records already => nothing
        FILTERED: not copied: a transform dropped the record => nothing
        DEAD_LETTERED: not copied: a transform failed for the record, which is in the dead-letter topic =>
            read it there
        ONLY_ONE: no other process can own the flow => nothing
        LEAST_LOADED: this process had the least to do => nothing
        EVEN_LOAD: the process before had more to do => nothing
        OUT_OF_REACH: the process before does not reach the source => see its reason there
        BY_HAND: an operator moved the flow here, and here it stays => `twinlog move`
        IN_DOUBT: the process that tells it hears nothing from the target; another may own the flow by now =>
            ask another process; see why this one does not reach the target
    """),
)  # fmt: skip
