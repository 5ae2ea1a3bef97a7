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
    name="rpc.server.call.duration",
    kind=Kind.HISTOGRAM,
    unit="s",
    description="Time an RPC took on the server, streams from start to end.",
    attributes=("rpc.method", "rpc.response.status_code", ERROR_TYPE),
    service="every",
    buckets=CALL_BUCKETS_SECONDS,
)
CLUSTER_REACHABLE = MetricSpec(
    name="twinlog.cluster.reachable",
    kind=Kind.GAUGE,
    unit="1",
    description="1 when the last probe of the cluster succeeded, 0 when it failed; absent before the first.",
    attributes=(CLUSTER,),
    service="every",
)
SERVICE_READY = MetricSpec(
    name="twinlog.service.ready",
    kind=Kind.GAUGE,
    unit="1",
    description="1 while every flow of the process has a known owner, and this process has done its first"
    " pass for each flow that it owns; else 0. The same as the health name `readiness`.",
    attributes=(TWINLOG_SERVICE,),
    service="every",
)
FLOW_OWNER = MetricSpec(
    name="twinlog.flow.owner",
    kind=Kind.GAUGE,
    unit="1",
    description="1 while this process owns the flow, 0 while it is on standby or the owner is not known.",
    attributes=(*FLOW, TWINLOG_SERVICE),
    service="every",
)
FLOW_OWNER_CHANGES = MetricSpec(
    name="twinlog.flow.owner.changes",
    kind=Kind.COUNTER,
    unit="{change}",
    description="How often this process has seen the owner of the flow change.",
    attributes=(*FLOW, TWINLOG_SERVICE),
    service="every",
)
CERTIFICATE_EXPIRY = MetricSpec(
    name="twinlog.certificate.expiry",
    kind=Kind.GAUGE,
    unit="s",
    description="Time until the certificate of the gRPC port expires, below 0 afterwards; absent without "
    "TLS.",
    attributes=(),
    service="every",
)
LOGIN_CERTIFICATE_EXPIRY = MetricSpec(
    name="twinlog.login.certificate.expiry",
    kind=Kind.GAUGE,
    unit="s",
    description="Time until the certificate expires with which the process logs in to a cluster; absent if it"
    " logs in without one.",
    attributes=(CLUSTER,),
    service="every",
)
TOKEN_EXPIRY = MetricSpec(
    name="twinlog.token.expiry",
    kind=Kind.GAUGE,
    unit="s",
    description="Time until the token expires with which the process logs in to a cluster (OAUTHBEARER), or, "
    "without `twinlog.cluster`, that of `twinlog.client.token.file`; below 0 afterwards. Absent without one, "
    "and for tokens that do not say when they expire.",
    attributes=(CLUSTER,),
    service="every",
)
TOKEN_LIFETIME = MetricSpec(
    name="twinlog.token.lifetime",
    kind=Kind.GAUGE,
    unit="s",
    description="The whole time for which that token is valid, to compare `twinlog.token.expiry` with.",
    attributes=(CLUSTER,),
    service="every",
)
TOKEN_FAILING = MetricSpec(
    name="twinlog.token.failing",
    kind=Kind.GAUGE,
    unit="1",
    description="1 if the last attempt to get a new token failed, else 0. Absent before the first attempt.",
    attributes=(CLUSTER,),
    service="every",
)
PROCESS_CPU_TIME = MetricSpec(
    name="process.cpu.time",
    kind=Kind.COUNTER,
    unit="s",
    description="CPU time of the process by `cpu.mode`: user, system; without its tasks.",
    attributes=("cpu.mode",),
    service="every",
)
PROCESS_MEMORY_USAGE = MetricSpec(
    name="process.memory.usage",
    kind=Kind.UP_DOWN_COUNTER,
    unit="By",
    description="Resident memory of the process, without its tasks.",
    attributes=(),
    service="every",
)
PROCESS_FILE_DESCRIPTORS = MetricSpec(
    name="process.unix.file_descriptor.count",
    kind=Kind.UP_DOWN_COUNTER,
    unit="{file_descriptor}",
    description="File descriptors that the process has open.",
    attributes=(),
    service="every",
)
PROCESS_SOCKETS = MetricSpec(
    name="twinlog.process.connections",
    kind=Kind.GAUGE,
    unit="{connection}",
    description="Open sockets: connections to brokers, services, callers and Spark, and listeners.",
    attributes=(),
    service="every",
)
PROCESS_UPTIME = MetricSpec(
    name="process.uptime",
    kind=Kind.GAUGE,
    unit="s",
    description="Time since the process began.",
    attributes=(),
    service="every",
)

METRICS: tuple[MetricSpec, ...] = (
    RPC_SERVER_CALL_DURATION,
    CLUSTER_REACHABLE,
    SERVICE_READY,
    FLOW_OWNER,
    FLOW_OWNER_CHANGES,
    CERTIFICATE_EXPIRY,
    LOGIN_CERTIFICATE_EXPIRY,
    TOKEN_EXPIRY,
    TOKEN_LIFETIME,
    TOKEN_FAILING,
    PROCESS_CPU_TIME,
    PROCESS_MEMORY_USAGE,
    PROCESS_FILE_DESCRIPTORS,
    PROCESS_SOCKETS,
    PROCESS_UPTIME,
)
