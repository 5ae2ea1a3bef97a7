"""The reasons of flows and topics."""

from typing import Final

from twinlog.reasons.rows import ReasonGroup, reasons

# The reasons of consumer groups, translated and moved.

GROUPS: Final = ReasonGroup(
    "Consumer groups (`twinlog groups`, `twinlog explain group`, `twinlog failover`)",
    reasons("""
        UP_TO_DATE: the group has read all that has been copied => nothing
        NOT_READY: the first pass over the offset syncs is not done => nothing
        PAST_END: the offset lies past the end of the log => check the group's offset on the source
        SOURCE_UNREADABLE: the source does not let the group's offsets, its logs or the offset syncs be read
            => the message names the cluster and the right that is missing
        TARGET_UNREADABLE: the target does not let its logs, the group's offsets or the checkpoints be read
            => the message names the cluster and the right that is missing
        GROUPS_NOT_TRANSLATED: a cluster does not answer, a topic may not be read, or another process owns
            the flow => the message names the cause
        MOVE_BLOCKED: something blocks the failover or failback => the message and `twinlog failover plan`
            list what, each with its remedy
        MOVE_IN_PROGRESS: another failover or failback of this flow is running => `twinlog failover watch`
            shows it, `twinlog failover stop` stops it
        BACKLOG_NOT_COPIED: not all of the source's records were copied in time => the message names the
            partitions and causes; run the command again to wait longer
        NOT_DRAINED: the flow that is to be reversed was stopped by somebody else => start it again as the
            message says, then run `twinlog reverse` again
        NOT_FOLLOWED: the services did not carry out a step of the reversal in time => run `twinlog reverse`
            again, it goes on from there
        RULES_UNKNOWN: the configsync service does not know the rules of the flow yet => the message says why
        MOVE_CANCELLED: an operator stopped the run; its changes stay, including a fence => `twinlog
            failover run` continues it, `twinlog failover give-up` removes its fence
        NO_MOVE: no failover or failback of this flow has run in this process since it started => `twinlog
            failover status` shows the recorded one
        NOTHING_TO_ABORT: there is no interrupted run of this kind => the message says which; `twinlog
            failback run` removes the fence of a finished failover
        FENCE_NOT_OURS: the record of failovers names an ACL that Twinlog would not have made for this flow:
            it is neither created nor deleted => see the message, and find out who may write the topic that
            holds the record
        NOT_VERIFIED: the offsets that Twinlog committed are not those that the target shows => run the
            command again
        STOPPING: the service is stopping; the next process continues the move => run the command again
    """),
)  # fmt: skip


FLOWS: Final = ReasonGroup(
    "Flows (`twinlog status`)",
    reasons("""
        STARTING: the flow has just been started => nothing
        SAME_CLUSTER: source and target of the flow have the same cluster id => correct `bootstrap.servers`
            of one of them
        LOOP: flows that keep names would copy a topic round over a third cluster, in a ring without direct
            flows; nothing is started, and a changed rule that would cause it is refused. If only the
            cluster ids show it (two aliases of one cluster), these flows do not run. If only a later topic
            shows it, no flow of the ring copies this topic. Of a partition: another program copies the
            copies back, and the same records come again and again => make the `topics` of these flows
            distinct, add the direct flows (docs/both-ways.md), or use the default policy; of a partition:
            stop the other program, then set the position (docs/both-ways.md)
        FILTER_FAILED: a filter of another package (`topic.filter.class`, `group.filter.class`,
            `config.property.filter.class`) failed; topics or groups are neither added nor removed meanwhile
            => see the message, and repair or remove the filter
        FORWARDING_FAILED: the class of another package that makes changes on the target
            (`forwarding.admin.class`) refused a change or did not answer in time; other changes are made,
            and this one is tried again with the next sync => see the message, and the system that this
            class calls
        RENAME_REFUSED: a rule of `twinlog.topic.rename` cannot be read, gives two topics one name, or makes
            names that cannot be read back => change the rule: the message names both topics
        OWNED_ELSEWHERE: another process owns the flow; this one stands by, and takes over when the owner
            stops or is silent for 10 s (`twinlog.owner.timeout.seconds`) => nothing; commands call the
            owner by themselves. If they cannot reach the address in the message, run them with `--endpoint`
            on a machine that reaches the owner
        MOVES_UNKNOWN: the record of failovers cannot be read: fences and unfinished moves are not shown =>
            the message says why
        PATH_UNKNOWN: `twinlog status --check`: it is not known whether heartbeats arrive => nothing just
            after the start; else see the heartbeat service's log
        NO_FLOWS: `twinlog status --check`: services answer, and none of them has a flow => name the right
            deployment (`--config`), or enable a flow in the file
        LAG_UNKNOWN: `twinlog status --check`: ends of the source's logs, or positions, are not known now =>
            nothing just after the start; later see the reasons of the clusters in `twinlog status`
        INSECURE: the port of a service is open to other machines without TLS or without authentication
            (`twinlog.insecure`) => docs/security.md has the settings for both
        FALLING_BEHIND: the lag of partitions that run, and are not delayed on purpose, is above 30 s and
            grows => `twinlog partitions` shows which partitions lag; give the source service more cores,
            and raise `twinlog.max.slots` and `tasks.max` if they are below the number of cores
        TOPICS_WAITING: `twinlog status --check`: topics are selected and not copied yet => the message
            names topics and why they wait
        NOT_COPIED: `twinlog status --check`: other services have the flow, and no source service that
            answers does => see that the source service runs, with the same file
        TWIN_DEPLOYMENT: another process, whose file selects other topics or groups, owns the flow; topics
            and groups that only the file of this process selects are not replicated => merge the selections
            into one file, or give the source another alias in one of them
        NO_TOPICS: no topic of the flow can be copied yet => `twinlog explain topic` says why a topic is not
            replicated
        NO_TOPICS_SELECTED: no topic of the source passes `topics` and `topics.exclude` => change the rules
            (`twinlog rules`)
        POSITIONS_UNSTABLE: a transaction on the positions topic is still open, so the positions are not
            certain => nothing: the broker ends it after `transaction.timeout.ms`
        SPARK_UNAVAILABLE: Spark could not be started, or its JVM ended; Twinlog starts it again => install
            Java 17 or newer, or correct `twinlog.spark.master`; if the JVM was killed, give the machine or
            the container more memory
        EPOCH_NOT_READY: Spark did not start the tasks of an epoch in time => check that the machine, or the
            Spark cluster, has free cores
        EPOCH_FAILED: a Spark job ended before the tasks of an epoch => the message names what is wrong
        REGISTRY_UNREADABLE: the records of configsync were written by a newer version, or are damaged =>
            run the newer version, or delete `mm2-configsync.<source>.internal`: changed rules are lost, and
            Twinlog no longer knows which topics and ACLs it created
        NO_AUTHORIZER: one of the clusters has no authorizer, so there are no ACLs to sync => nothing
        CHANGES_REFUSED: the target refused some of the changes => the message says what it refused
        HEARTBEATS_DISABLED: `emit.heartbeats.enabled=false`: nothing shows whether the path works while no
            records are written => enable heartbeats to measure delays
        NOT_REPLICATED: the flow does not copy this topic (or heartbeats) => `twinlog explain topic` names
            the rule
        HEARTBEAT_MISSING: heartbeats are written on the source and do not arrive on the target => nothing
            while the flow is paused; otherwise see the state of its partitions in `twinlog status`
        BROKER_SILENT: a broker of the cluster does not answer while others do; copying goes on with those
            => look after the broker; it is not missed once no partition has replicas on it
    """),
)  # fmt: skip

TOPICS: Final = ReasonGroup(
    "Topics (`twinlog status`, `twinlog explain topic`)",
    reasons("""
        SELECTED: the topic is replicated => nothing
        NOT_INCLUDED: `topics` does not match its name => `twinlog explain topic` has the command that
            adds it
        EXCLUDED: `topics.exclude` matches its name => `twinlog explain topic` has the command that
            takes the pattern away
        INTERNAL: it is a topic of Kafka, Connect or Twinlog itself => nothing
        CYCLE: by its name the topic is a copy that came through the target, or through the source itself =>
            nothing; if it is not a copy, its name begins with the alias of one of the two clusters: give
            that cluster another alias
        HEARTBEATS: heartbeats are replicated whatever the topic rules say => nothing
        DELETED_AT_SOURCE: the source topic was deleted; its copy stays => nothing
        SOURCE_LOST: the source no longer has any of its topics, or of its groups: it was wiped or restored
            empty. No copy, ACL, quota or group is deleted on the target => restore the topics on the
            source, or delete the copies on the target by hand
        SOURCE_REPLACED: the source has another cluster id than before; copies of topics that it lacks are
            kept => correct the source's `bootstrap.servers`, or delete the copies on the target by hand
        FAILED_OVER: a failover is running, or has run without a failback: Twinlog deletes no group and no
            copy of a deleted source topic, and `sync.group.offsets` leaves the moved groups alone =>
            `twinlog failback run`, once the applications use the source again
        REPLICATION_FACTOR_UNSATISFIABLE: the target has fewer live brokers than `replication.factor` =>
            lower it, or add brokers
        MIN_ISR_ABOVE_REPLICATION_FACTOR: the copy would refuse every write, because `min.insync.replicas`
            is above its replication factor (brokers before Kafka 3.7) => raise `replication.factor`, or
            lower `min.insync.replicas` of the target's brokers
        CONFIGS_UNAUTHORIZED: the source does not let the topic's configuration be read => grant
            DescribeConfigs, or set `sync.topic.configs.enabled=false`
        TARGET_NOT_VISIBLE: it was created, and the target's brokers do not show it yet => nothing
        PLAN_PENDING: manual mode: changes are planned => `twinlog plan`, then `twinlog apply`
    """),
)  # fmt: skip
