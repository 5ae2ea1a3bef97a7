"""Reasons of partitions, offsets of copies, gaps, and ranges that were not compared."""

from typing import Final

from twinlog.reasons.rows import ReasonGroup, reasons

PARTITIONS: Final = ReasonGroup(
    "Partitions of a flow (`twinlog partitions`)",
    reasons("""
        COMPARING: the copy is about to begin, and its target has records already: Twinlog compares them
            with the source, to continue behind what both have => nothing
        TARGET_OPEN_TRANSACTION: the copy is about to begin, its target has records already, and a
            transaction of an application is open among them, so they cannot be compared with the source =>
            end the transaction: stop or restart the application that began it; `kafka-transactions.sh
            find-hanging` and `abort` on the target where the application no longer exists
        OPEN_TRANSACTION: everything is copied up to a transaction that has been open on the source for a
            minute or longer; nothing behind it can be copied before it ends => let its producer end it; if
            that no longer exists, wait for its `transaction.timeout.ms`, or `kafka-transactions.sh abort`
            with the partition and the offset in the message: docs/states.md
        ORIGIN_UNKNOWN: the policy keeps names, another flow copies the topic to the source, and the
            positions topic of that flow, which says which records are copies, does not say it (yet) =>
            nothing, if the other flow is about to start; else see the message, which says what is missing:
            docs/both-ways.md
        PAUSED_BY_OPERATOR: an operator paused it, its topic or the flow => `twinlog pause` lists the pauses;
            `twinlog resume`, with the flow and topic of the pause, ends one
        RECORD_TOO_LARGE: one record, alone in a batch and compressed, is above the target topic's
            `max.message.bytes` or `segment.bytes` => raise the limit of the source topic
            (`kafka-configs.sh --bootstrap-server SOURCE --alter --topic TOPIC --add-config
            max.message.bytes=N`), then `twinlog apply 'A->B' --scope configs`, because the next sync takes
            back what only the target has; the copy continues within a minute. Or skip the record, whose
            offset the message names: `twinlog positions set 'A->B' --topic TOPIC --partition N --to OFFSET`
            with the next one
        RECORD_INVALID: the target refuses a record, mostly one without a key: the target topic is
            compacted, and the source topic was not yet when the record was written => set the position past
            the record's offset, which the message names; or, to copy the record, remove `compact` from the
            target topic's `cleanup.policy`, which must not be synchronized meanwhile: the copy continues by
            itself
        BATCH_TOO_LARGE: a batch that Twinlog has to decompress is larger uncompressed than
            `twinlog.batch.max.uncompressed.bytes`, or than the free memory => if the batch is valid, raise
            the key (and the memory of the service): the copy continues by itself; or set the position past
            the batch, whose offset the message names
        CORRUPT_BATCH: a batch on the source does not match its checksum, or cannot be read => repair the
            source's disk or let another replica lead: the copy continues by itself; or set the position
            past the batch, whose offset the message names
        TRANSFORM_FAILED: Spark cannot compute one of the flow's `twinlog.transform.*` for a record, and
            `twinlog.transform.on.error=stop` => correct the expression for the record whose offset the
            message names, or choose another `twinlog.transform.on.error`, and restart the source service;
            or set the position past the record
        TRANSFORM_REFUSED: Spark does not understand one of the flow's `twinlog.transform.*`, or it may not
            be done to records: the message names the key => correct the key (docs/transforms.md) and
            restart the source service
        ROUTE_NOT_THERE: the next records go to a topic that configsync has not created yet, or that has too
            few partitions => nothing, while configsync runs; else see `twinlog explain topic`
        ROUTE_REFUSED: records would go to a topic that they must not have: the message says why => correct
            the router (docs/transforms.md), and restart the source service
        NO_FREE_CORE: the Spark cluster has had no core for a minute for the job that changes the partition's
            records => give it more: two for each slot, and one (docs/spark.md); or set `twinlog.max.slots`
        DATA_LOSS: the source no longer holds the next offset, and `twinlog.on.data.loss=fail` => see the
            range in the message, then set the position to where the copy should continue (`twinlog
            positions set`)
        TRUNCATION_SUSPECTED: the source's log ended before the position: it lost its tail, or it is a new
            topic with the old name => nothing: after five seconds Twinlog knows which, and acts as
            `twinlog.on.data.loss` says
        NO_POSITION: there is no stored position and `auto.offset.reset=none` => `twinlog positions set`, or
            another `auto.offset.reset`
        START_GROUP_ACTIVE: the group of `twinlog.start.group` has members, so another replicator still
            commits for it => stop that replicator; the partition then begins by itself at the group's
            committed offset
        POSITION_UNREADABLE: the stored position is not a number; Twinlog does not ignore it, because it
            would copy everything again => `twinlog positions set`
        TARGET_SLOW: the target takes long to acknowledge or commit records; the copy continues when it has
            => look at the target's brokers if it stays
        HIGH_WATERMARK_BEHIND: the copy's leader has records that not all of its replicas have, so where the
            copy ends is asked again => if it stays: `kafka-topics.sh --describe
            --under-replicated-partitions` on the target
        TARGET_LOST_TAIL: a preserved copy ended before its position (unclean election, an old disk): the
            log and the metric `twinlog.replication.failures` show it, the lost records are copied again,
            and the copy keeps the source's offsets => see why the target lost records
        DELAYED: the next records are younger than `twinlog.delay.seconds`: the partition is delayed =>
            nothing
        UNTIL_REACHED: a finite copy (`twinlog copy`) has reached the offset where it ends => nothing
        NO_TASK: no Spark task copies the partition now: one died and the next has not started => nothing;
            if it stays, see the log of the source service and the reason of the flow (`twinlog status`)
        FETCH_UNANSWERED: the partition is STALLED: its task has requested the next records, and the source
            does not answer => look at the broker that leads the partition, and at quotas of the principal
            on the source
        QUOTA: a client quota of a cluster delays the partition's task => raise the quota of the principal
            or client id on the cluster that the message names
        THROTTLED: the partition is STALLED: a limit that an operator set leaves no bytes for it => `twinlog
            throttle` with a higher limit, or `none`
    """),
)  # fmt: skip

COPIES: Final = ReasonGroup(
    "Offsets of copies (`twinlog partitions`, `twinlog explain topic`): why a copy is translated",
    reasons("""
        OFFSETS_CONFIGURED: it is configured by `twinlog.offsets` or `twinlog.offsets.translated.topics`, or
            a `Filter` of the flow's transforms may drop records => nothing
        TRANSACTIONS_DISABLED: `exactly.once.source.support=disabled`: without transactions Twinlog cannot
            fill holes in the source's offsets => remove that key before the copy begins
        COMPACTED: `cleanup.policy` of the source or the target topic contains `compact` => nothing
        BOTH_WAYS: the topic is copied both ways under the same name, so the copy has records of both
            clusters => nothing
        POSITION_STORED: MirrorMaker 2 or an earlier version of Twinlog began the copy => to have the
            source's offsets, replace the target topic (docs/offsets.md)
        TARGET_NOT_EMPTY: the target topic had other records before the copy began => to have the source's
            offsets, replace the target topic (docs/offsets.md)
        TARGET_DIFFERS: the target held the source's records up to an offset before the copy began or
            continued, and other records from there on: the copy continues at that offset, which the message
            names => nothing is lost; records that only the target holds (they were written there, not
            copied) stay there: `twinlog verify` names them (FOREIGN)
        TARGET_TOO_OLD: the target's brokers are older than Kafka 2.8 => upgrade them before the copy begins
        RIGHTS_MISSING: the target refuses what a preserved copy needs: READ on the copy, IDEMPOTENT_WRITE
            where its brokers ask for it, and DELETE where the source's log does not start at offset 0 =>
            grant the rights (docs/rights.md) before the copy begins
        FILL_TOO_LARGE: more offsets would have to be filled before the first record than
            `twinlog.offsets.fill.max` or `twinlog.offsets.fill.total` allows => raise the key, then replace
            the target topic (docs/offsets.md)
        SOURCE_RECREATED: the source topic was deleted and created again while its copy stayed: offsets
            begin at 0 again => to have the source's offsets, replace the target topic (docs/offsets.md)
        SOURCE_TRUNCATED: the source lost records that were copied (unclean election, an old disk): their
            offsets in the copy are taken, so later records of the source cannot be copied to these offsets
            => see why the source lost records; to have the source's offsets, replace the target topic
            (docs/offsets.md)
        FOREIGN_WRITE: another producer wrote to the copy; the message has the offsets and the producer id
            => find the producer and revoke its right to write; to have the source's offsets, replace the
            target topic (docs/offsets.md)
        MARKER_REPEATED: the copy has a transaction marker where the source has a record: the target's
            transaction coordinator was killed while it ended a transaction that filled offsets, and ended
            it once more (KAFKA-19999), or another producer's transaction ended there; nothing is lost =>
            grant ALTER on the target cluster (before Kafka 3.8 CLUSTER_ACTION), and no coordinator is
            needed (docs/rights.md); to have the source's offsets, replace the target topic
            (docs/offsets.md)
        HOLE_TOO_LONG: a missing range of the source (aborted records, or records that retention removed) is
            longer than 128 offsets, or 10,000 where the target grants ALTER on the cluster (before Kafka
            3.8 CLUSTER_ACTION): if the copy had its offsets, consumers with `read_uncommitted` would read
            empty records there => for a topic whose consumers use `read_committed`: name it in
            `twinlog.offsets.preserved.topics`, then replace the target topic (docs/offsets.md)
        HOLES_TOO_FREQUENT: the source has so many small transactions, and the target is so far away, that
            filling the offsets of their markers takes more than half of the time => make the transactions
            larger, then replace the target topic (docs/offsets.md)
        FILL_REFUSED: the target refuses the empty records with timestamp 0 with which Twinlog fills holes
            in the source's offsets => raise max.message.bytes or remove message.timestamp.before.max.ms of
            the target topic; if the copy has become translated, replace the target topic to have the
            source's offsets (docs/offsets.md)
    """),
)  # fmt: skip

GAPS: Final = ReasonGroup(
    "Gaps (`twinlog gaps`)",
    reasons("""
        RETENTION: retention or DeleteRecords on the source overtook the copy: these offsets will never be
            on the target => set a longer retention on the source, or make the copy faster
        TRUNCATION: the source lost these records after they had been copied (unclean election, an old
            disk): the target still has them, and records that the source wrote since are copied after them
            => nothing is lost on the target; see why the source lost records
        TOPIC_RECREATED: the source topic was deleted and created again: records of the old topic that were
            not copied are gone; the new topic is copied from its beginning => nothing
        TARGET_RECREATED: the target topic was deleted and created again, and its records are gone; a
            preserved copy is copied again from the start of the source's log, and only what the source no
            longer holds is the gap (docs/offsets.md) => for a translated copy: `twinlog positions set --to
            earliest` copies again what the source still holds
        TARGET_TRUNCATED: the target's log ends before records that were written there (unclean election, an
            old disk); the range is counted back from the position, so it may begin a little early =>
            translated copies: `twinlog positions set` copies again what the source still holds; preserved
            copies do so by themselves
        SKIPPED_BY_OPERATOR: `twinlog positions set` went forward and left these records out => in a
            translated copy `twinlog positions set` copies them as long as the source holds them; a
            preserved copy cannot go back (docs/offsets.md)
    """),
)  # fmt: skip

VERIFY: Final = ReasonGroup(
    "Ranges that were not compared (`twinlog verify`)",
    reasons("""
        SOURCE_RETENTION: the source deleted records that the copy still has, or its log was truncated
            (`twinlog gaps`) => nothing
        EARLIER_TOPIC: the source topic was deleted and created again, and the copy still has records of the
            earlier one => nothing
        LOST: `twinlog gaps` lists these records as lost: they are on neither cluster => find the cause,
            then `twinlog gaps ack`
        TARGET_RETENTION: the target deleted records that the source still has => nothing
        BEFORE_FIRST_COPY: the flow began at the end of the topic (`auto.offset.reset=latest`), and these
            records are older => nothing
        KNOWN_GAP: `twinlog gaps` lists these records as not on the target => decide about the records, then
            `twinlog gaps ack`
        NOT_COPIED_YET: they are after the stored position of the flow: lag, not loss => run the command
            again when they are copied, or wait longer with `--wait`
        TARGET_OPEN_TRANSACTION: a transaction is open on the copy: `read_committed` consumers cannot read
            records after its beginning => run the command again; if it stays, see docs/states.md
        OTHER_TRANSFORMS: the records were copied while the flow had other transforms or expressions => verify
            with the file of that time, which compares these records only
        ROUTED: the flow sends records of this topic to several topics, and one copy says nothing of them =>
            `twinlog verify` compares each with what it takes
        TRANSFORMED: the copy has what the flow's transforms made of the records, and not those that they
            drop: it is no other place for the source's => keep the records on the source, or copy them
            unchanged, too
        TARGET_MISSING: there is no such topic or partition on the target => `twinlog explain topic` says
            whether it is copied; `twinlog plan` shows what will be created
        BOTH_WAYS: the topic is copied both ways under the same name, and the records of one cluster cannot
            be told from those of the others: the detail says why => docs/both-ways.md
        TOO_DIFFERENT: a million records were compared without finding 16 in a row that agree => look at the
            first differences: the copy may be of another topic
    """),
)  # fmt: skip
