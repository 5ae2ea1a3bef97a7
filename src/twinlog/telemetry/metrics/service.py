"""Metrics of every service: calls, clusters, credentials, its process."""

from twinlog.telemetry.metrics.spec import (
    CALL_BUCKETS_SECONDS,
    CLUSTER,
    ERROR_TYPE,
    FLOW,
    TWINLOG_SERVICE,
    Kind,
    MetricSpec,
)

RPC_SERVER_CALL_DURATION = MetricSpec(
    "rpc.server.call.duration", Kind.HISTOGRAM, "s", ("rpc.method",
    "rpc.response.status_code", ERROR_TYPE), "every",
    "Time an RPC took on the server, streams from start to end.", buckets=CALL_BUCKETS_SECONDS)  # fmt: skip
CLUSTER_REACHABLE = MetricSpec("twinlog.cluster.reachable", Kind.GAUGE, "1", (CLUSTER,), "every",
    "1 when the last probe of the cluster succeeded, 0 when it failed; absent before the first.")  # fmt: skip
SERVICE_READY = MetricSpec("twinlog.service.ready", Kind.GAUGE, "1", (TWINLOG_SERVICE,), "every",
    "1 while every flow of the process has a known owner, and this process has done its first pass for each "
    "flow that it owns; else 0. The same as the health name `readiness`.")  # fmt: skip
FLOW_OWNER = MetricSpec("twinlog.flow.owner", Kind.GAUGE, "1", (*FLOW, TWINLOG_SERVICE), "every",
    "1 while this process owns the flow, 0 while it is on standby or the owner is not known.")  # fmt: skip
FLOW_OWNER_CHANGES = MetricSpec(
    "twinlog.flow.owner.changes", Kind.COUNTER, "{change}", (*FLOW, TWINLOG_SERVICE), "every",
    "How often this process has seen the owner of the flow change.")  # fmt: skip
CERTIFICATE_EXPIRY = MetricSpec("twinlog.certificate.expiry", Kind.GAUGE, "s", (), "every",
    "Time until the certificate of the gRPC port expires, below 0 afterwards; absent without TLS.",
)  # fmt: skip
LOGIN_CERTIFICATE_EXPIRY = MetricSpec(
    "twinlog.login.certificate.expiry", Kind.GAUGE, "s", (CLUSTER,), "every",
    "Time until the certificate expires with which the process logs in to a cluster; absent if it logs in "
    "without one.")  # fmt: skip
CERTIFICATE_LIFETIME = MetricSpec("twinlog.certificate.lifetime", Kind.GAUGE, "s", (), "every",
    "The whole time for which that certificate is valid.")  # fmt: skip
LOGIN_CERTIFICATE_LIFETIME = MetricSpec(
    "twinlog.login.certificate.lifetime", Kind.GAUGE, "s", (CLUSTER,), "every",
    "The whole time for which the certificate of a login is valid.")  # fmt: skip
TOKEN_EXPIRY = MetricSpec("twinlog.token.expiry", Kind.GAUGE, "s", (CLUSTER,), "every",
    "Time until the token expires with which the process logs in to a cluster (OAUTHBEARER), or, without "
    "`twinlog.cluster`, that of `twinlog.client.token.file`; below 0 afterwards. Absent without one, and "
    "for tokens that do not say when they expire.")  # fmt: skip
TOKEN_LIFETIME = MetricSpec("twinlog.token.lifetime", Kind.GAUGE, "s", (CLUSTER,), "every",
    "The whole time for which that token is valid, to compare `twinlog.token.expiry` with.")  # fmt: skip
TOKEN_FAILING = MetricSpec("twinlog.token.failing", Kind.GAUGE, "1", (CLUSTER,), "every",
    "1 if the last attempt to get a new token failed, else 0. Absent before the first attempt.")  # fmt: skip
PROCESS_CPU_TIME = MetricSpec("process.cpu.time", Kind.COUNTER, "s", ("cpu.mode",), "every",
    "CPU time of the process by `cpu.mode`: user, system; without its tasks.")  # fmt: skip
PROCESS_MEMORY_USAGE = MetricSpec("process.memory.usage", Kind.UP_DOWN_COUNTER, "By", (), "every",
    "Resident memory of the process, without its tasks.")  # fmt: skip
PROCESS_FILE_DESCRIPTORS = MetricSpec(
    "process.unix.file_descriptor.count", Kind.UP_DOWN_COUNTER, "{file_descriptor}", (), "every",
    "File descriptors that the process has open.")  # fmt: skip
PROCESS_SOCKETS = MetricSpec("twinlog.process.connections", Kind.GAUGE, "{connection}", (), "every",
    "Open sockets: connections to brokers, services, callers and Spark, and listeners.")  # fmt: skip
PROCESS_UPTIME = MetricSpec("process.uptime", Kind.GAUGE, "s", (), "every",
    "Time since the process began.")  # fmt: skip
