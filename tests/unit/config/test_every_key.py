"""Every documented key has a test that sets it and looks at what a client, a broker or a service then does.

The table names that test. It is looked up in its file, and the key has to stand in it, or in what it uses of
the same file: helpers, fixtures and constants.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from twinlog.config.keys.client import EFFECTIVE_BY_CLIENT
from twinlog.config.keys.table import ALL_KEYS
from unit.cases import about

TESTS = Path(__file__).parents[2]

OF_FLOWS = {
    "integration/kafka/test_silent_brokers.py": {
        "test_administrative_calls_of_a_flow_end_with_admin_timeout_ms": """
            admin.timeout.ms
        """,
    },
    "unit/config/test_security.py": {
        "test_each_key_of_a_port_is_obeyed_for_one_service_and_for_all": """
            twinlog.tls.certificate.file twinlog.tls.key.file twinlog.tls.ca.file
            twinlog.tls.client.auth twinlog.tls.server.name twinlog.insecure
            twinlog.source.tls.certificate.file twinlog.source.tls.key.file
            twinlog.source.tls.ca.file twinlog.source.tls.client.auth
            twinlog.source.tls.server.name twinlog.source.insecure
            twinlog.checkpoint.tls.certificate.file twinlog.checkpoint.tls.key.file
            twinlog.checkpoint.tls.ca.file twinlog.checkpoint.tls.client.auth
            twinlog.checkpoint.tls.server.name twinlog.checkpoint.insecure
            twinlog.heartbeat.tls.certificate.file twinlog.heartbeat.tls.key.file
            twinlog.heartbeat.tls.ca.file twinlog.heartbeat.tls.client.auth
            twinlog.heartbeat.tls.server.name twinlog.heartbeat.insecure
            twinlog.configsync.tls.certificate.file twinlog.configsync.tls.key.file
            twinlog.configsync.tls.ca.file twinlog.configsync.tls.client.auth
            twinlog.configsync.tls.server.name twinlog.configsync.insecure
        """,
        "test_each_key_of_callers_is_obeyed": """
            twinlog.client.tls.certificate.file twinlog.client.tls.key.file
            twinlog.client.tls.ca.file twinlog.client.token.file twinlog.auth.tokens.file
            twinlog.auth.oidc.issuer twinlog.auth.oidc.audience twinlog.auth.oidc.jwks.url
            twinlog.auth.oidc.ca.file twinlog.auth.oidc.algorithms
            twinlog.auth.oidc.roles.claim twinlog.auth.oidc.clock.skew.seconds
            twinlog.auth.viewers twinlog.auth.operators twinlog.auth.admins
        """,
    },
    "integration/configsync/test_configsync_acls.py": {
        "test_mode_read_only_follows_removals_and_leaves_foreign_acls": """
            sync.topic.acls.interval.seconds twinlog.sync.topic.acls.mode
        """,
    },
    "unit/configsync/planning/test_quotas.py": {
        "test_the_sources_quotas_are_set_and_those_of_addresses_are_not": """
            twinlog.sync.client.quotas.enabled
        """,
    },
    "unit/configsync/planning/test_plan_apply.py": {
        "test_manual_mode_plans_and_says_that_it_waits": """
            twinlog.sync.mode
        """,
    },
    "e2e/test_changed_records.py": {
        "test_records_arrive_changed_and_once_also_when_the_jvm_is_killed": """
            twinlog.transform.topics twinlog.transform.where twinlog.transform.key twinlog.transform.value
            twinlog.transform.headers twinlog.transform.timestamp twinlog.transform.python
            twinlog.transform.on.error twinlog.transform.timeout.seconds twinlog.dead.letter.topic
            twinlog.provenance.headers
        """,
    },
    "simulated/test_routes.py": {
        "test_an_expression_routes_records_and_what_is_no_topic_is_treated_as_an_error": """
            twinlog.transform.topic
        """,
    },
    "integration/cli/test_rename.py": {
        "test_data_settings_and_groups_go_by_the_new_names_and_none_meets_another": """
            twinlog.topic.rename
        """,
    },
    "integration/cli/test_finite_copy.py": {
        "test_a_flow_is_held_behind_and_brought_to_an_instant_and_to_the_end": """
            twinlog.delay.seconds
        """,
    },
    "integration/verify/test_standing_proof.py": {
        "test_copies_are_proven_while_they_are_made": """
            twinlog.verify.interval.seconds twinlog.verify.max.bytes.per.second
        """,
    },
    "integration/cli/test_flow_keys.py": {
        "test_what_a_file_says_of_its_flows_is_what_both_clusters_show": """
            clusters enabled name topics topics.exclude groups groups.exclude replication.factor
            checkpoints.topic.replication.factor heartbeats.topic.replication.factor
            offset-syncs.topic.replication.factor offset.storage.replication.factor offset.storage.topic
            offset.storage.partitions offsets.storage.topic replication.policy.separator
            replication.policy.internal.topic.separator.enabled emit.heartbeats.enabled
            emit.heartbeats.interval.seconds heartbeats.replication.enabled refresh.topics.enabled
            refresh.topics.interval.seconds sync.topic.configs.enabled sync.topic.configs.interval.seconds
            config.properties.exclude offset-syncs.topic.location offset.lag.max
            twinlog.sync.topic.configs.include twinlog.sync.topic.configs.fixed
            twinlog.offset-syncs.min.compaction.lag.seconds refresh.groups.enabled
            refresh.groups.interval.seconds emit.checkpoints.enabled emit.checkpoints.interval.seconds
            emit.offset-syncs.enabled sync.group.offsets.enabled sync.group.offsets.interval.seconds
            twinlog.translation.max.bytes twinlog.sync.group.deletes.enabled
            twinlog.sync.group.deletes.grace.seconds twinlog.sync.group.deletes.max.per.hour
            twinlog.sync.topic.deletes.enabled twinlog.sync.topic.deletes.grace.seconds
            twinlog.sync.topic.deletes.max.per.hour exactly.once.source.support twinlog.log.level
            twinlog.source.listen twinlog.checkpoint.listen twinlog.heartbeat.listen
            twinlog.configsync.listen twinlog.source.endpoint twinlog.checkpoint.endpoint
            twinlog.heartbeat.endpoint twinlog.configsync.endpoint twinlog.source.metrics.listen
            twinlog.checkpoint.metrics.listen twinlog.heartbeat.metrics.listen
            twinlog.configsync.metrics.listen
        """,
    },
    "simulated/test_stand_by.py": {
        "test_a_second_configsync_answers_changes_nothing_and_takes_over": """
            twinlog.owner.timeout.seconds
        """,
    },
    "integration/service/test_service_runtime_process.py": {
        "test_a_stuck_loop_is_cancelled_at_the_grace_and_the_exit_is_clean": """
            twinlog.grace.seconds
        """,
        "test_calls_are_answered_until_drain_seconds_are_over": """
            twinlog.drain.seconds
        """,
        "test_lines_of_the_log_are_in_log_format": """
            twinlog.log.format
        """,
    },
    "integration/source/test_source_cluster_mode.py": {
        "test_five_flows_lose_and_repeat_nothing_while_a_worker_is_killed_and_another_one_comes": """
            twinlog.spark.master
        """,
    },
    "integration/source/test_source_keys.py": {
        "test_slots_syncs_kept_offsets_and_the_way_of_tasks_are_as_the_file_says": """
            tasks.max twinlog.max.slots offset.flush.interval.ms twinlog.offsets.preserved.topics
            twinlog.offsets.fill.total twinlog.source.worker.listen twinlog.source.worker.endpoint
        """,
    },
    "integration/source/test_source_lag.py": {
        "test_lag_is_true_or_not_known_from_the_first_moment_and_without_spark": """
            twinlog.stalled.seconds
        """,
    },
    "integration/source/test_source_loss.py": {
        "test_what_was_lost_while_the_service_was_down_is_found_at_its_start": """
            twinlog.on.data.loss
        """,
    },
    "integration/source/test_source_preserved.py": {
        "test_copies_keep_their_offsets_through_what_happens_to_them": """
            twinlog.offsets twinlog.offsets.translated.topics
        """,
    },
    "simulated/test_epochs.py": {
        "test_tasks_stay_while_their_plan_holds_and_are_replaced_when_it_does_not": """
            twinlog.epoch.seconds twinlog.epoch.max.seconds
        """,
    },
    "unit/configsync/planning/test_config_rules.py": {
        "test_with_source_defaults_an_override_is_set_to_the_sources_default": """
            use.defaults.from
        """,
    },
    "unit/configsync/planning/test_live_rules.py": {
        "test_an_update_wakes_the_loop_and_changes_its_intervals": """
            sync.topic.acls.enabled
        """,
    },
    "unit/config/test_errors.py": {
        "test_wrong_value": """
            source.cluster.alias replication.policy.class
        """,
        "test_refused": """
            exactly.once.support
        """,
    },
    "unit/source/topics/test_start_positions.py": {
        "test_the_keys_of_a_file_say_where_a_flow_begins": """
            twinlog.start.group twinlog.start.time
        """,
    },
    "unit/config/test_key_effects.py": {
        "test_classes_that_are_not_kafkas_own_are_refused": """
            forwarding.admin.class target.cluster.alias
            topic.filter.class group.filter.class config.property.filter.class
        """,
    },
    "unit/config/test_transform_keys.py": {
        "test_a_flow_has_the_transforms_of_its_file": """
            transforms predicates
        """,
    },
    "unit/config/test_providers.py": {
        "test_what_finds_nothing_stays_as_written_and_is_said_once": """
            config.providers
        """,
    },
    "unit/source/topics/test_copy_modes.py": {
        "test_a_copy_that_costs_too_much_is_translated_or_refused_as_configured": """
            twinlog.offsets.fill.max
        """,
    },
    "unit/source/task/reading/test_horizon.py": {
        "test_where_a_copy_ends_comes_from_the_file_to_its_tasks": """
            twinlog.copy.until
        """,
    },
    "simulated/test_steering.py": {
        "test_what_weighs_more_is_copied_first_under_a_limit": """
            twinlog.weight
        """,
    },
    "unit/source/task/test_copy_settings.py": {
        "test_the_lease_of_a_task_is_as_long_as_configured": """
            twinlog.lease.seconds
        """,
        "test_a_backlog_of_small_batches_is_packed_below_the_configured_size": """
            twinlog.coalesce.below.bytes
        """,
        "test_a_batch_is_opened_up_to_the_configured_size": """
            twinlog.batch.max.uncompressed.bytes
        """,
        "test_repacked_batches_are_compressed_as_hard_as_configured": """
            twinlog.recode.compression.level
        """,
    },
}
"""Keys of flows and services by the file and the test that sets them."""

OF_CLIENTS = {
    "unit/config/test_key_effects.py": {
        "test_ssl_protocol_is_the_newest_that_is_spoken": "ssl.protocol",
    },
    "integration/kafka/test_broker_requests.py": {
        "test_brokers_are_asked_as_the_file_says": """
            client.id client.rack fetch.max.bytes max.partition.fetch.bytes fetch.min.bytes
            fetch.max.wait.ms request.timeout.ms isolation.level transaction.timeout.ms max.request.size
        """,
        "test_metadata_max_age_ms_is_how_often_every_client_asks_what_there_is": """
            metadata.max.age.ms bootstrap.servers
        """,
        "test_connections_that_are_idle_are_closed": """
            connections.max.idle.ms
        """,
    },
    "unit/kafka/raw/test_refused_batches.py": {
        "test_a_refused_record_is_sent_again_as_often_as_retry_backoff_ms_says": """
            retry.backoff.ms
        """,
        "test_a_batch_that_is_refused_again_and_again_fails_after_delivery_timeout_ms": """
            delivery.timeout.ms
        """,
    },
    "integration/kafka/test_silent_brokers.py": {
        "test_a_call_to_brokers_that_do_not_answer_ends_with_default_api_timeout_ms": """
            default.api.timeout.ms
        """,
    },
    "integration/kafka/test_tls_offers.py": {
        "test_clients_offer_what_ssl_enabled_protocols_and_ssl_cipher_suites_leave": """
            ssl.enabled.protocols ssl.cipher.suites
        """,
    },
    "unit/kafka/security/test_kerberos.py": {
        "test_a_key_table_a_ticket_and_the_service_are_read_as_java_reads_them": """
            sasl.kerberos.service.name
        """,
    },
    "integration/kafka/test_kafka_security.py": {
        "test_every_mechanism_logs_in_over_tls": """
            security.protocol
        """,
        "test_a_wrong_password_is_said_quickly_and_not_shown": """
            sasl.jaas.config
        """,
        "test_java_truststores_are_trusted": """
            ssl.truststore.type ssl.truststore.location ssl.truststore.password
        """,
        "test_an_identity_may_be_a_store_with_a_password": """
            ssl.keystore.type ssl.keystore.location ssl.keystore.password
        """,
        "test_identity_and_trust_may_stand_in_the_properties": """
            ssl.keystore.key ssl.keystore.certificate.chain ssl.key.password ssl.truststore.certificates
        """,
        "test_the_name_of_a_broker_is_compared_with_its_certificate_unless_that_is_off": """
            ssl.endpoint.identification.algorithm
        """,
    },
    "integration/local/test_local_cluster.py": {
        "test_kafka_3_9_with_tls_scram_and_an_authorizer": """
            sasl.mechanism
        """,
    },
    "unit/source/driver/test_state.py": {
        "test_a_position_of_0_wins_over_the_reset": """
            auto.offset.reset
        """,
    },
    "integration/source/test_source_settings.py": {
        "test_codec_isolation_and_fetch_sizes_are_as_the_file_says": """
            compression.type
        """,
    },
    "unit/kafka/security/test_oauth.py": {
        "test_each_key_of_tokens_is_obeyed": """
            sasl.login.callback.handler.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
            sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
            sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.login.retry.backoff.ms
            sasl.login.retry.backoff.max.ms sasl.oauthbearer.assertion.algorithm
            sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
            sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
            sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
            sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
            sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
            sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
            sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwt.retriever.class
            sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
            sasl.oauthbearer.token.endpoint.url
        """,
        "test_what_cannot_be_obeyed_is_refused_with_its_key_and_remedy": """
            sasl.client.callback.handler.class
        """,
    },
    "unit/source/task/writing/test_client_settings.py": {
        "test_the_dials_of_the_producer_are_as_the_file_says": """
            delivery.timeout.ms retry.backoff.ms
        """,
    },
    "unit/source/task/test_copy_settings.py": {
        "test_damage_is_looked_for_unless_check_crcs_is_off": """
            check.crcs
        """,
    },
}
"""Settings of Kafka clients by the file and the test that sets them."""

DOCUMENTED = {spec.name for spec in ALL_KEYS if spec.meaning}
OF_ALL_CLIENTS = frozenset[str]().union(*EFFECTIVE_BY_CLIENT.values())


def _entries(table: Mapping[str, Mapping[str, str]]) -> list[tuple[str, str, str]]:
    """Key, file and test, of every line."""
    return [
        (key, file, name)
        for file, tests in table.items()
        for name, keys in tests.items()
        for key in keys.split()
    ]


def _keys(table: Mapping[str, Mapping[str, str]]) -> set[str]:
    return {key for key, _, _ in _entries(table)}


def test_every_documented_key_has_its_test() -> None:
    assert _keys(OF_FLOWS) == DOCUMENTED
    assert _keys(OF_CLIENTS) == OF_ALL_CLIENTS


def test_the_test_of_a_key_is_there_and_sets_it() -> None:
    for key, file, name in sorted(_entries(OF_FLOWS) + _entries(OF_CLIENTS)):
        with about(key, file, name):
            written = "\n".join(_texts_of(TESTS / file, name))
            assert re.search(rf"(?:(?<![\w-])|(?<=\\n)){re.escape(key)}(?=[\"'\s=])", written), (
                f"{file}::{name} does not set {key}"
            )


def _texts_of(file: Path, name: str) -> Iterator[str]:
    """A test and everything of its file that it uses, decorators included."""
    lines, defined = _parsed(file)
    assert name in defined, f"{file.name} has no {name}"
    seen: set[str] = set()
    wanted = [name]
    while wanted:
        each = wanted.pop()
        if each in seen:
            continue
        seen.add(each)
        for node in defined[each]:
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
            yield from lines[first - 1 : node.end_lineno]
            wanted += [used for used in _names(node) if used in defined]


def _names(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr
        elif isinstance(each, ast.arg):
            yield each.arg


@cache
def _parsed(file: Path) -> tuple[Sequence[str], dict[str, list[ast.stmt]]]:
    """What a file defines at its top and in its classes, by name; constants by the names they are given."""
    source = file.read_text(encoding="utf-8")
    defined: dict[str, list[ast.stmt]] = {}
    module = ast.parse(source)
    statements = list(module.body)
    for statement in statements:
        if isinstance(statement, ast.ClassDef):
            statements += statement.body
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            defined.setdefault(statement.name, []).append(statement)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    defined.setdefault(target.id, []).append(statement)
    return source.splitlines(), defined
