"""What the processes do and cost."""

from deploy.observability.boards.panels import (
    ANY_IS_BAD,
    FLOW,
    FLOWS,
    RATE,
    YES,
    by_flow,
    of,
    panel,
    percentile,
)
from deploy.observability.grafana import Board

SERVICES = Board(
    uid="twinlog-7-services",
    title="Twinlog 7: services",
    meaning="What the processes do and cost.",
    panels=(
        panel(
            "Ready",
            "Whether each process has an owner at work for each of its flows.",
            (
                "min by (twinlog_service, instance) (twinlog_service_ready)",
                "{{twinlog_service}} {{instance}}",
            ),
            words=YES,
            width=12,
        ),
        panel(
            "Who works at a flow",
            "1: the process owns the flow. 0: it stands by.",
            (
                f"max by ({FLOW}, twinlog_service, instance) ({of('twinlog_flow_owner')})",
                FLOWS + " {{twinlog_service}} {{instance}}",
            ),
            width=12,
        ),
        panel("CPU", "Cores that each service uses, without Spark.",
            (f"sum by (instance) (rate(process_cpu_time_seconds_total[{RATE}]))", "{{instance}}")),
        panel("Memory", "Resident memory of each service.",
            ("sum by (instance) (process_memory_usage_bytes)", "{{instance}}"), unit="bytes"),
        panel("Memory of Spark and its tasks", "Resident memory on the machine of the source service.",
            ("sum by (instance) (twinlog_tasks_memory_bytes)", "{{instance}}"), unit="bytes"),
        panel("Connections", "Open sockets of each process.",
            ("sum by (instance) (twinlog_process_connections)", "{{instance}}")),
        panel("File descriptors", "Open file descriptors of each process.",
            ("sum by (instance) (process_unix_file_descriptor_count)", "{{instance}}")),
        panel("Up for", "Time since each process started.",
            ("min by (instance) (process_uptime_seconds)", "{{instance}}"), unit="s"),
        panel(
            "RPCs",
            "Calls a second, by status.",
            (
                f"sum by (rpc_response_status_code) (rate(rpc_server_call_duration_seconds_count[{RATE}]))",
                "{{rpc_response_status_code}}",
            ),
            unit="reqps",
        ),
        panel(
            "Time of RPCs",
            "99th percentile, by method.",
            (
                (
                    "histogram_quantile(0.99, sum by (rpc_method, le)"
                    f" (rate(rpc_server_call_duration_seconds_bucket[{RATE}])))"
                ),
                "{{rpc_method}}",
            ),
            unit="s",
        ),
        panel("Length of epochs", "Median duration of the epochs that Spark runs.",
            (percentile(0.5, "twinlog_pipeline_batch_duration_seconds", "15m"), FLOWS), unit="s"),
        panel(
            "Certificate expires in",
            "Certificate of the gRPC port, and of the login to each cluster; empty without TLS.",
            ("min by (instance) (twinlog_certificate_expiry_seconds)", "{{instance}}"),
            (
                "min by (twinlog_cluster) (twinlog_login_certificate_expiry_seconds)",
                "login to {{twinlog_cluster}}",
            ),
            unit="s",
            least=None,
        ),
        panel(
            "Token expires in",
            "Token of the OAUTHBEARER login to each cluster, and of calls to other services; empty without.",
            (
                "min by (instance, twinlog_cluster) (twinlog_token_expiry_seconds)",
                "{{instance}} {{twinlog_cluster}}",
            ),
            unit="s",
            least=None,
        ),
        panel(
            "Changes of owner",
            "How often the owner of each flow changed in an hour.",
            (
                f"sum by ({FLOW}, twinlog_service) (increase({of('twinlog_flow_owner_changes_total')}[1h]))",
                FLOWS + " {{twinlog_service}}",
            ),
        ),
    ),
)  # fmt: skip


# Whether the target is as the source: topics, configurations, ACLs, quotas.

CONFIG = Board(
    uid="twinlog-5-config",
    title="Twinlog 5: configuration and access",
    meaning="Does the target match the source: topics, configurations, ACLs, quotas?",
    panels=(
        panel(
            "Out of step",
            "Changes that the target refuses, or that wait for `twinlog apply`; `twinlog plan` lists them.",
            (
                f"max by ({FLOW}, twinlog_resource_type) ({of('twinlog_configsync_drift')})",
                FLOWS + " {{twinlog_resource_type}}",
            ),
            limits=ANY_IS_BAD,
            width=12,
        ),
        panel("Last comparison", "Time since source and target were last compared.",
            (by_flow("max", "twinlog_configsync_age_seconds"), FLOWS), unit="s", width=12),
        panel(
            "Changes",
            "Changes on the target in an hour, by kind and outcome.",
            (
                (
                    f"sum by (twinlog_resource_type, twinlog_outcome)"
                    f" (increase({of('twinlog_configsync_changes_total')}[1h]))"
                ),
                "{{twinlog_resource_type}} {{twinlog_outcome}}",
            ),
            width=12,
        ),
        panel(
            "Topics by state",
            "READY: the topic is copied. The other states: `twinlog topics` says why not.",
            (
                f"max by ({FLOW}, twinlog_state) ({of('twinlog_configsync_topics')})",
                FLOWS + " {{twinlog_state}}",
            ),
            width=12,
        ),
    ),
)  # fmt: skip
