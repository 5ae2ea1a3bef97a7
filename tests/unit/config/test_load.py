"""From a file to typed settings: which flows there are and what each service is given."""

import re
from pathlib import Path

import pytest

from twinlog.config import (
    Address,
    AutoOffsetReset,
    FlowConfig,
    LogFormat,
    NoticeLevel,
    OffsetsMode,
    OffsetsSettings,
    OffsetStorage,
    OffsetSyncsLocation,
    OffsetSyncsSettings,
    OnDataLoss,
    Service,
    load,
)
from twinlog.config.flow.settings import fixed_configs
from twinlog.errors import ConfigError
from twinlog.model import Flow
from unit.cases import about
from unit.config.config_files import FILE, TWO_CLUSTERS, OneFile, load_more, load_text, problems

A_TO_B = Flow("A", "B")
B_TO_A = Flow("B", "A")
THREE_CLUSTERS = "clusters = A, B, C\nbootstrap.servers = all:9092\n"


def test_a_minimal_file_replicates_one_flow_and_beats_on_both() -> None:
    configuration = load_text(TWO_CLUSTERS)
    assert [(flow.flow, flow.enabled, flow.heartbeat.enabled) for flow in configuration.flows] == [
        (A_TO_B, True, True),
        (B_TO_A, False, True),
    ]
    assert [flow.flow for flow in configuration.enabled_flows] == [A_TO_B]
    assert configuration.clusters["A"].bootstrap_servers == ("a:9092",)
    assert configuration.notices == ()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", [("A->B", False, True)]),
        ("A->B.enabled = true", [("A->B", True, True)]),
        ("A->B.enabled = true\nA->B.emit.heartbeats.enabled = false", [("A->B", True, False)]),
    ],
)
def test_heartbeats_of_a_flow(lines: str, expected: list[tuple[str, bool, bool]]) -> None:
    off = "clusters = A, B\nbootstrap.servers = x:1, y:2\nB->A.emit.heartbeats.enabled = false\n"
    flows = load_text(off + lines).flows
    assert [(str(flow.flow), flow.enabled, flow.heartbeat.enabled) for flow in flows] == expected


def test_a_file_without_flows_is_refused() -> None:
    assert problems(THREE_CLUSTERS + "emit.heartbeats.enabled = false") == [
        f"{FILE}: clusters: No source->target replication flows."
    ]


def test_only_some_flows() -> None:
    configuration = load_text(THREE_CLUSTERS, only_flows=[Flow("B", "A")])
    assert [flow.flow for flow in configuration.flows] == [B_TO_A]
    assert set(configuration.clusters) == {"A", "B"}
    into_c = load_text(THREE_CLUSTERS, only_targets=["C"])
    assert [flow.flow for flow in into_c.flows] == [Flow("A", "C"), Flow("B", "C")]


@pytest.mark.parametrize("wrong", [{"only_flows": [Flow("A", "X")]}, {"only_targets": ["X"]}])
def test_asking_for_what_is_not_there_names_what_is(wrong: dict[str, list[Flow] | list[str]]) -> None:
    with pytest.raises(ConfigError, match=r"A.*B"):
        load_text(TWO_CLUSTERS, **wrong)  # type: ignore[arg-type]


def test_a_flow_is_found_by_its_name() -> None:
    configuration = load_text(TWO_CLUSTERS)
    assert configuration.flow(A_TO_B).flow == A_TO_B
    with pytest.raises(ConfigError, match=r"there is no flow A->C; flows: A->B, B->A"):
        configuration.flow(Flow("A", "C"))


def test_what_other_flows_refer_to_is_not_read() -> None:
    text = TWO_CLUSTERS + (
        "config.providers = file\n"
        "config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider\n"
        "clusters = A, B, C\n"
        "C.bootstrap.servers = ${file:/none:servers}\n"
    )
    assert load_text(text, only_flows=[A_TO_B]).flows[0].flow == A_TO_B
    with pytest.raises(ConfigError, match=r"C.bootstrap.servers: .*cannot read /none"):
        load_text(text)


def test_overrides_win_over_the_file() -> None:
    configuration = load_text(TWO_CLUSTERS, overrides={"A->B.topics": "orders", "twinlog.epoch.seconds": "0"})
    assert configuration.flow(A_TO_B).configsync.topics.include == ("orders",)
    assert configuration.flow(A_TO_B).source.epoch_seconds == 0


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"^nothing\.properties: cannot be read: No such file or directory"):
        load(Path("nothing.properties"), environ={}, files=OneFile(""))


def test_defaults_of_the_source_service() -> None:
    source = load_text(TWO_CLUSTERS).flow(A_TO_B).source
    assert source.connector_name == "MirrorSourceConnector"
    assert source.exactly_once
    assert source.read_committed
    assert source.auto_offset_reset is AutoOffsetReset.EARLIEST
    assert source.max_slots is None
    assert source.offset_storage == OffsetStorage(
        topic="mm2-offsets.A.internal", partitions=25, replication_factor=3
    )
    assert source.offset_syncs == OffsetSyncsSettings(
        enabled=True,
        location=OffsetSyncsLocation.SOURCE,
        replication_factor=3,
        max_lag_records=100,
        min_compaction_lag_seconds=604800,
    )
    assert source.sync_flush_seconds == 60
    assert source.on_data_loss is OnDataLoss.RECORD
    assert source.coalesce_below_bytes == 65536
    assert source.max_uncompressed_bytes == 134217728
    assert source.recode_compression_level is None
    assert source.offsets == OffsetsSettings()


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("PT1H", 3_600_000),
        ("pt0.5s", 500),
        ("P2DT3H4M", 2 * 86_400_000 + 3 * 3_600_000 + 240_000),
        ("P1D", 86_400_000),
        ("PT36H", 129_600_000),
        ("PT0S", 0),
    ],
)
def test_a_duration_of_the_reset_is_read_as_java_does(text: str, duration_ms: int) -> None:
    source = load_more(f"A.consumer.auto.offset.reset = by_duration:{text}").flow(A_TO_B).source
    assert source.auto_offset_reset is AutoOffsetReset.BY_DURATION
    assert source.reset_duration_ms == duration_ms


def test_a_name_at_the_top_names_no_connector_as_in_mirrormaker() -> None:
    """Its positions are under MirrorSourceConnector all the same: seen with Kafka 4.3."""
    configuration = load_more("name = mirror-of-the-file", strict=True)
    assert configuration.flow(A_TO_B).source.connector_name == "MirrorSourceConnector"
    (told,) = [each for each in configuration.notices if each.key == "name"]
    assert "A->B.name is for positions of a Connect cluster" in told.text


def test_settings_of_the_source_service() -> None:
    source = (
        load_more(
            "B.exactly.once.source.support = disabled",
            "B.offset.flush.interval.ms = 1500",
            "offset.storage.replication.factor = -1",
            "A->B.offsets.storage.topic = own-offsets",
            "A.consumer.isolation.level = read_uncommitted",
            "A.consumer.auto.offset.reset = latest",
            "tasks.max = 3",
            "offset-syncs.topic.location = target",
            "offset.lag.max = 0",
            "A->B.name = mirror-1",
            "A->B.twinlog.on.data.loss = fail",
            "twinlog.recode.compression.level = -3",
            "A->B.twinlog.batch.max.uncompressed.bytes = 2000000",
            "A->B.twinlog.offsets = auto",
            "twinlog.offsets.preserved.topics = orders, paid-.*",
            "twinlog.offsets.translated.topics = paid-old",
            "twinlog.offsets.fill.max = 5",
            "A->B.twinlog.offsets.fill.total = 7",
        )
        .flow(A_TO_B)
        .source
    )
    assert not source.exactly_once
    assert not source.read_committed
    assert source.auto_offset_reset is AutoOffsetReset.LATEST
    assert source.max_slots == 3
    assert source.offset_storage == OffsetStorage(topic="own-offsets", partitions=25, replication_factor=-1)
    assert source.offset_syncs.location is OffsetSyncsLocation.TARGET
    assert source.offset_syncs.max_lag_records == 0
    assert source.sync_flush_seconds == 1.5
    assert source.connector_name == "mirror-1"
    assert source.on_data_loss is OnDataLoss.FAIL
    assert source.recode_compression_level == -3
    assert source.max_uncompressed_bytes == 2_000_000
    assert source.offsets == OffsetsSettings(
        mode=OffsetsMode.AUTO,
        preserved_topics=("orders", "paid-.*"),
        translated_topics=("paid-old",),
        fill_max=5,
        fill_total=7,
    )


def test_our_own_limit_of_slots_wins_over_tasks_max() -> None:
    assert load_more("tasks.max = 3", "twinlog.max.slots = 7").flow(A_TO_B).source.max_slots == 7


def test_the_workers_settings_are_the_targets_and_the_top_level_wins() -> None:
    configuration = load_more("B.offset.storage.topic = of-b", "A.offset.storage.partitions = 5")
    assert configuration.flow(A_TO_B).source.offset_storage.topic == "of-b"
    assert configuration.flow(B_TO_A).source.offset_storage.topic == "mm2-offsets.B.internal"
    assert configuration.flow(B_TO_A).source.offset_storage.partitions == 5
    both = load_more("B.offset.storage.topic = of-b", "offset.storage.topic = everywhere")
    assert both.flow(A_TO_B).source.offset_storage.topic == "everywhere"


def test_settings_of_the_checkpoint_service() -> None:
    checkpoint = (
        load_more(
            "groups = app-.*, jobs",
            "A->B.groups.blacklist = app-test.*",
            "A->B.sync.group.offsets.enabled = TRUE",
            "emit.checkpoints.interval.seconds = 0",
            "refresh.groups.interval.seconds = 5",
            "checkpoints.topic.replication.factor = 1",
        )
        .flow(A_TO_B)
        .checkpoint
    )
    assert checkpoint.enabled
    assert checkpoint.groups.include == ("app-.*", "jobs")
    assert checkpoint.groups.exclude == ("app-test.*",)
    assert checkpoint.topics.include == (".*",)
    assert checkpoint.sync_group_offsets_enabled
    assert checkpoint.sync_group_offsets_interval_seconds == 60
    assert checkpoint.emit_interval_seconds == 0.1
    assert checkpoint.refresh_groups_interval_seconds == 5
    assert checkpoint.topic_replication_factor == 1
    assert checkpoint.connector_name == "MirrorCheckpointConnector"


def test_a_negative_interval_switches_off_as_in_mm2() -> None:
    for prefix in ["", "A->B."]:
        for task in [
            *("refresh.topics", "sync.topic.configs", "sync.topic.acls", "refresh.groups"),
            *("emit.checkpoints", "sync.group.offsets", "emit.heartbeats"),
        ]:
            with about(prefix, task):
                lines = (f"{prefix}{task}.enabled = true", f"{prefix}{task}.interval.seconds = -1")
                configuration = load_more(*lines, strict=True)

                def running(flow: FlowConfig) -> dict[str, bool]:
                    return {
                        "refresh.topics": flow.configsync.refresh_topics_enabled,
                        "sync.topic.configs": flow.configsync.sync_configs_enabled,
                        "sync.topic.acls": flow.configsync.sync_acls_enabled,
                        "refresh.groups": flow.checkpoint.refresh_groups_enabled,
                        "emit.checkpoints": flow.checkpoint.enabled,
                        "sync.group.offsets": flow.checkpoint.sync_group_offsets_enabled,
                        "emit.heartbeats": flow.heartbeat.enabled,
                    }

                with_all = running(load_more(lines[0]).flow(A_TO_B))
                assert running(configuration.flow(A_TO_B)) == {**with_all, task: False}
                told = [notice for notice in configuration.notices if notice.level is NoticeLevel.INFO]
                counts_as = f"is negative, which counts as {task}.enabled=false"
                assert [str(notice) for notice in told] == [
                    f"line 6: {prefix}{task}.interval.seconds: {counts_as}"
                ]


def test_the_interval_of_what_is_switched_off_by_it_is_the_default() -> None:
    flow = load_more("sync.topic.acls.interval.seconds = -5", "emit.heartbeats.interval.seconds=-1").flow(
        B_TO_A
    )
    assert flow.configsync.sync_acls_interval_seconds == 600
    assert flow.heartbeat.interval_seconds == 1
    assert not flow.heartbeat.enabled


def test_checkpoints_that_a_negative_interval_switches_off_are_named() -> None:
    configuration = load_more("emit.checkpoints.interval.seconds = -1")
    assert "line 5: emit.checkpoints.interval.seconds: consumer groups of A->B are not translated" in [
        str(notice) for notice in configuration.notices
    ]


def test_settings_of_configsync_and_heartbeat() -> None:
    flow = load_more(
        "topics = ",
        "A->B.use.defaults.from = source",
        "config.properties.exclude = a, b",
        "A->B.twinlog.sync.topic.configs.include = retention.*, cleanup.policy",
        "A->B.twinlog.sync.topic.configs.fixed = orders retention.ms=1",
        "replication.factor = -1",
        "sync.topic.acls.enabled = false",
        "emit.heartbeats.interval.seconds = 2.5",
    ).flow(A_TO_B)
    assert flow.configsync.topics.include == ()
    assert flow.configsync.topics.exclude == (r"mm2.*\.internal", r".*\.replica", "__.*")
    assert flow.configsync.use_source_defaults
    assert flow.configsync.config_properties_exclude == ("a", "b")
    assert flow.configsync.config_properties_include == ("retention.*", "cleanup.policy")
    assert fixed_configs(flow.configsync.fixed_configs, "orders")["retention.ms"].value == "1"
    assert flow.configsync.replication_factor == -1
    assert flow.configsync.refresh_topics_interval_seconds == 30
    assert not flow.configsync.sync_acls_enabled
    assert flow.heartbeat.interval_seconds == 2.5
    assert flow.heartbeat.topic_replication_factor == 3


@pytest.mark.parametrize("package", ["", "org.apache.kafka.connect.mirror."])
def test_the_policy_is_named_in_full_and_only_what_is_configured_is_there(package: str) -> None:
    flow = load_more(
        f"replication.policy.class = {package}IdentityReplicationPolicy",
        "A->B.replication.policy.separator = _",
    ).flow(A_TO_B)
    assert flow.policy_config == {
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "replication.policy.separator": "_",
        "source.cluster.alias": "A",
        "clusters": "A, B",
    }
    assert "replication.policy.separator" not in load_text(TWO_CLUSTERS).flow(A_TO_B).policy_config


def test_endpoints_are_on_loopback_with_a_port_for_each_service() -> None:
    endpoints = load_text(TWO_CLUSTERS).endpoints
    assert {service: endpoints[service].listen.port for service in Service} == {
        Service.SOURCE: 17401,
        Service.CHECKPOINT: 17402,
        Service.HEARTBEAT: 17403,
        Service.CONFIGSYNC: 17404,
    }
    assert {endpoint.listen.host for endpoint in endpoints.values()} == {"127.0.0.1"}
    assert all(endpoint.endpoint == endpoint.listen for endpoint in endpoints.values())
    assert {service: str(endpoints[service].metrics_listen) for service in Service} == {
        Service.SOURCE: "127.0.0.1:17411",
        Service.CHECKPOINT: "127.0.0.1:17412",
        Service.HEARTBEAT: "127.0.0.1:17413",
        Service.CONFIGSYNC: "127.0.0.1:17414",
    }
    assert all(endpoint.metrics_is_default for endpoint in endpoints.values())


def test_metrics_are_off_where_their_address_is_empty() -> None:
    endpoint = load_more("twinlog.source.metrics.listen =").endpoints[Service.SOURCE]
    assert endpoint.metrics_listen is None


def test_endpoints_as_written() -> None:
    endpoints = load_more(
        "twinlog.source.listen = 0.0.0.0:0",
        "twinlog.checkpoint.listen = [::1]:1",
        "twinlog.checkpoint.endpoint = checkpoint.example:2",
        "twinlog.checkpoint.metrics.listen = 127.0.0.1:3",
    ).endpoints
    assert endpoints[Service.SOURCE].endpoint == Address(host="127.0.0.1", port=0)
    assert endpoints[Service.CHECKPOINT].listen == Address(host="[::1]", port=1)
    assert endpoints[Service.CHECKPOINT].endpoint == Address(host="checkpoint.example", port=2)
    assert endpoints[Service.CHECKPOINT].metrics_listen == Address(host="127.0.0.1", port=3)


def test_a_standalone_spark_without_a_secret_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"spark\.authenticate\.secret: missing"):
        load_more("twinlog.spark.master = spark://s:7077")


@pytest.mark.parametrize("master", ["local[2]", "yarn", "k8s://https://k:6443"])
def test_other_sparks_make_their_secret_themselves(master: str) -> None:
    assert load_more(f"twinlog.spark.master = {master}").notices == ()


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("twinlog.spark.master = sc://spark:15002", "twinlog.spark.master"),
        ("twinlog.spark.conf.spark.remote = sc://spark:15002", "twinlog.spark.conf.spark.remote"),
        ("twinlog.spark.conf.spark.api.mode = Connect", "twinlog.spark.conf.spark.api.mode"),
        ("twinlog.spark.conf.spark.master = yarn", "twinlog.spark.conf.spark.master"),
        ("twinlog.spark.conf.spark.speculation = TRUE", "twinlog.spark.conf.spark.speculation"),
    ],
)
def test_a_spark_that_cannot_copy_or_would_copy_twice_is_refused(line: str, key: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{key}:")):
        load_more(line)


def test_a_spark_that_is_told_what_it_does_anyway_is_taken() -> None:
    conf = ("twinlog.spark.conf.spark.speculation = false", "twinlog.spark.conf.spark.api.mode = classic")
    assert load_more(*conf).notices == ()


@pytest.mark.parametrize("master", ["local[2]", "spark://s:7077"])
def test_a_spark_that_asks_nobody_who_he_is_is_warned_of(master: str) -> None:
    configuration = load_more(
        f"twinlog.spark.master = {master}", "twinlog.spark.conf.spark.authenticate = false"
    )
    (notice,) = configuration.notices
    assert notice.level is NoticeLevel.WARNING
    assert notice.key == "twinlog.spark.conf.spark.authenticate"


def test_spark_and_runtime() -> None:
    configuration = load_more(
        "twinlog.spark.master = spark://s:7077",
        "twinlog.spark.conf.spark.executor.memory = 2g",
        "twinlog.spark.conf.spark.authenticate.secret = sesame",
        "twinlog.source.worker.endpoint = source.example:1",
        "twinlog.log.format = JSON",
        "twinlog.log.level = debug",
        "twinlog.drain.seconds = 0.5",
    )
    assert configuration.spark.master == "spark://s:7077"
    assert configuration.spark.conf == {
        "spark.executor.memory": "2g",
        "spark.authenticate.secret": "sesame",
    }
    assert configuration.spark.worker_endpoint == Address(host="source.example", port=1)
    assert configuration.runtime.log_format is LogFormat.JSON
    assert configuration.runtime.log_level == "debug"
    assert configuration.runtime.drain_seconds == 0.5
    assert configuration.notices == ()


def test_metrics_and_calls_of_one_service_never_share_a_port() -> None:
    """A default port of metrics makes way; one that somebody chose is refused with both keys."""
    moved = load_more("twinlog.source.listen = 127.0.0.1:17411").endpoints[Service.SOURCE]
    assert moved.metrics_listen == Address(host="127.0.0.1", port=0)
    with pytest.raises(ConfigError, match=r"twinlog\.source\.metrics\.listen: .*twinlog\.source\.listen"):
        load_more("twinlog.source.listen = 0.0.0.0:5", "twinlog.source.metrics.listen = 127.0.0.1:5")


def test_fixed_configs_that_say_nothing_clear_name_their_line_and_an_example() -> None:
    with pytest.raises(
        ConfigError, match=r"twinlog.sync.topic.configs.fixed: expected rules such as 'orders"
    ):
        load_more("twinlog.sync.topic.configs.fixed = orders retention.ms: 1")
