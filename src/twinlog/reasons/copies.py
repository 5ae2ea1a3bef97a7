"""Reasons of partitions, offsets of copies, gaps, and ranges that were not compared."""

from typing import Final

from twinlog.reasons.rows import NOTHING, REPLACE, OwnReason, ReasonGroup

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
            "look at the range in the message, then `twinlog positions set` to where the copy is to continue",
        ),
        OwnReason(
            "TRUNCATION_SUSPECTED",
            "the source's log ended before the position: it lost its tail, or is a new topic of the old name",
            "nothing: after five seconds Twinlog knows which, and acts as `twinlog.on.data.loss` says",
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
            "the next records are younger than `twinlog.delay.seconds`: the partition is delayed",
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
        OwnReason("OFFSETS_CONFIGURED", "`twinlog.offsets` says so", NOTHING),
        OwnReason(
            "TRANSACTIONS_DISABLED",
            "`exactly.once.source.support=disabled`: offsets that the source does not show cannot be filled",
            "remove that key before the copy begins",
        ),
        OwnReason(
            "COMPACTED",
            "`cleanup.policy` of the source or the target topic contains `compact`",
            NOTHING,
        ),
        OwnReason(
            "POSITION_STORED",
            "MirrorMaker 2 or an earlier version of Twinlog began the copy",
            REPLACE,
        ),
        OwnReason(
            "TARGET_NOT_EMPTY",
            "the target topic had other records before the copy began",
            REPLACE,
        ),
        OwnReason(
            "TARGET_DIFFERS",
            "the target held the source's records up to an offset before the copy began or continued, and"
            " other records from there on: the copy continues at that offset, which the message names",
            "nothing is lost; records that only the target holds, as they were written there and not copied,"
            " stay there: `twinlog verify` names them (FOREIGN)",
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
            "raise the key, then replace the target topic (docs/offsets.md)",
        ),
        OwnReason(
            "SOURCE_RECREATED",
            "the source topic was deleted and created again while its copy stayed: offsets begin at 0 again",
            REPLACE,
        ),
        OwnReason(
            "SOURCE_TRUNCATED",
            "the source lost records that were copied (unclean election, an old disk): what it wrote there"
            " since has no place in a copy with its offsets",
            f"see why the source lost records; {REPLACE}",
        ),
        OwnReason(
            "FOREIGN_WRITE",
            "another producer wrote to the copy; the message says where, and names the producer id",
            "find the writer and take its right to write; to have the source's offsets, replace the target"
            " topic (docs/offsets.md)",
        ),
        OwnReason(
            "MARKER_REPEATED",
            "the end of a transaction lies in the copy where the source has a record: the target's"
            " transaction coordinator was killed while it ended a transaction that filled offsets, and ended"
            " it once more (KAFKA-19999), or somebody else's transaction ended there; nothing is lost",
            REPLACE,
        ),
        OwnReason(
            "HOLE_TOO_LONG",
            "the source shows no record over more than 128 offsets (aborted records, a range that retention"
            " took): in a copy with its offsets, consumers with `read_uncommitted` would read empty records"
            " there",
            "for a topic whose consumers use `read_committed`: name it in `twinlog.offsets.preserved.topics`,"
            " then replace the target topic (docs/offsets.md)",
        ),
        OwnReason(
            "HOLES_TOO_FREQUENT",
            "the source has so many small transactions, and the target is so far away, that filling the"
            " offsets of their markers takes more than half of the time",
            "larger transactions, then replace the target topic (docs/offsets.md)",
        ),
        OwnReason(
            "FILL_REFUSED",
            "the target takes no empty records with timestamp 0, by which offsets that the source does not"
            " show are filled",
            "raise max.message.bytes or remove message.timestamp.before.max.ms of the target topic;"
            f" where the copy became translated, {REPLACE}",
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
            NOTHING,
        ),
        OwnReason(
            "TARGET_RECREATED",
            "the target topic was deleted and created again: what it held is gone there; a preserved copy is"
            " copied again from the start of the source's log, and only what the source no longer holds is"
            " the gap (docs/offsets.md)",
            "for a translated copy: `twinlog positions set --to earliest` copies again what the source still"
            " holds",
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

VERIFY: Final = ReasonGroup(
    "Ranges that were not compared (`twinlog verify`)",
    (
        OwnReason(
            "SOURCE_RETENTION",
            "the source deleted records that the copy still has, or lost them as `twinlog gaps` says",
            NOTHING,
        ),
        OwnReason("TARGET_RETENTION", "the target deleted records that the source still has", NOTHING),
        OwnReason(
            "BEFORE_FIRST_COPY",
            "the flow began at the end of the topic (`auto.offset.reset=latest`), and they came before",
            NOTHING,
        ),
        OwnReason(
            "KNOWN_GAP",
            "`twinlog gaps` lists these records as not on the target",
            "`twinlog gaps ack` once it is dealt with",
        ),
        OwnReason(
            "NOT_COPIED_YET",
            "they come after the stored position of the flow: lag, and no loss",
            "run the command again when the copy has arrived, or give it longer with `--wait`",
        ),
        OwnReason(
            "TARGET_OPEN_TRANSACTION",
            "a transaction is open on the copy, and hides what comes after its beginning",
            "run the command again; if it stays, see docs/losses.md",
        ),
        OwnReason(
            "TARGET_MISSING",
            "there is no such topic or partition on the target",
            "`twinlog explain topic` says whether it is copied; `twinlog plan` what is to be created",
        ),
        OwnReason(
            "TOO_DIFFERENT",
            "a million records were compared without finding 16 in a row that agree",
            "look at the first differences: the copy may be of another topic",
        ),
    ),
)
