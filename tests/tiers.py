"""Which target of the Makefile runs a test. The longest beginning of its id decides; README.md says why.

`make test` runs `unit` and `properties`, too. Tests by Hypothesis are `properties` without being named.
"""

from typing import Literal

Tier = Literal["unit", "properties", "test", "conformance", "nightly"]

_TIERS: dict[str, Tier] = {
    "tests/unit/": "unit",
    "tests/simulated/": "test",
    "tests/simulated/test_random_lives.py::test_after_the_last_fault_everything_is_copied[101]": "nightly",
    "tests/e2e/": "test",
    "tests/e2e/one_run/test_java_reads_our_topics.py": "conformance",
    "tests/e2e/test_changed_records.py": "conformance",
    "tests/e2e/test_examples.py": "nightly",
    "tests/e2e/test_take_over.py": "nightly",
    "tests/e2e/test_take_over.py::test_either_takes_over_and_repeats_nothing[mm2]": "test",
    "tests/e2e/test_take_over_connect.py": "conformance",
    "tests/e2e/test_take_over_group.py": "nightly",
    "tests/e2e/test_transforms.py": "conformance",
    "tests/chaos/": "conformance",
    "tests/contract/": "nightly",
    "tests/integration/": "nightly",
}
_TEST = (
    "contract/cluster/test_fake_",
    "contract/rpc/",
    "integration/kafka/test_raw_copy.py",
    "integration/service/test_service_runtime_grpc.py",
    "integration/preserved/test_preserved_strangers.py",
    "integration/preserved/test_preserved_tails.py",
    "integration/preserved/test_preserved_target_probe.py",
    "integration/preserved/test_preserved_task.py",
    "integration/source/test_source_loss.py",
    "integration/verify/test_verify.py",
    "integration/verify/test_verify_borders.py",
)
"""On fake brokers but for the losses, which are a promise of the README."""
_CONFORMANCE = (
    # The wire.
    "contract/cluster/test_real_cluster.py",
    "integration/kafka/test_kafka_outages.py",
    "integration/kafka/test_raw_brokers.py",
    "integration/kafka/test_raw_hanging.py::test_nothing_is_written_onto_a_transaction_that_hangs",
    "integration/kafka/test_silent_brokers.py",
    "integration/preserved/test_leader_markers.py",
    "integration/preserved/test_preserved_brokers.py::test_leaders_that_are_killed_in_turn",
    "integration/source/test_quotas.py::test_every_kind_of_request_waits_out_a_request_percentage",
    # Security.
    "contract/access/test_access.py",
    "contract/access/test_oidc.py::test_every_method_for_a_token_of_the_provider_of_every_role",
    "contract/access/test_rotation.py",
    "contract/access/test_tls.py",
    "integration/cli/test_preflight_command.py",
    "integration/configsync/test_configsync_acls.py",
    "integration/kafka/test_kafka_kerberos.py",
    "integration/kafka/test_kafka_oauth.py::test_every_client_logs_in_with_one_token",
    "integration/kafka/test_kafka_oauth.py::test_open_connections_outlive_their_sessions",
    "integration/kafka/test_kafka_rotation.py::test_a_password_and_a_certificate_are_rotated_under_load",
    "integration/kafka/test_kafka_security.py",
    "integration/service/test_secured_service.py::test_a_port_beyond_loopback",
    "integration/source/test_read_only_source.py",
    # Java, and those who wrote or read with it.
    "integration/checkpoint/test_checkpoint_client.py::test_java_says_what_our_client_says",
    "integration/checkpoint/test_checkpoint_exact.py",
    "integration/checkpoint/test_checkpoint_moves.py::test_a_live_consumer_goes_there_and_back_and_reads_each_record_once[translated]",
    "integration/configsync/test_configsync_as_mm2.py",
    "integration/migration/",
    "integration/verify/test_verify_mm2.py",
    # Spark, processes, and who watches them.
    "contract/test_ui.py::test_a_person_sees_flows_and_walks_through_all_views_by_keyboard",
    "contract/test_ui.py::test_the_migration_view_shows_the_services_own_plan",
    "contract/test_ui.py::test_what_changes_in_a_service_changes_on_the_page",
    "contract/test_ui.py::test_what_goes_away_is_said_and_what_it_told_stays",
    "contract/test_ui.py::test_with_tokens_a_person_signs_in_and_a_stranger_sees_nothing",
    "integration/observability/test_alerts.py",
    "integration/observability/test_prometheus.py",
    "integration/source/test_source_cluster_mode.py",
    "integration/source/test_source_failures.py::test_each_fault_stops_only_its_partition",
)
"""What only others can prove. Else decisions of our own with services as processes are `nightly`."""
_OTHER_RELEASES = ("2.8]", "3.3]", "3.9]", "4.4]")
"""Of the contract on the fake broker. On real brokers of these releases: `make versions`."""
_PROPERTIES = (
    "batches/test_batch_hostile.py::test_a_batch_that_stands_for_too_much_is_a_fault_where_it_begins",
    "batches/test_batch_hostile.py::test_memory_that_is_not_there_is_a_fault_of_one_partition",
    "batches/test_batch_hostile.py::test_readers_and_counters_refuse_it_too",
    "batches/test_small_batches.py",
    "checkpoint/api/test_group_pages.py::test_a_request_without_a_page_size_gets_what_one_message_takes",
    "checkpoint/moves/test_move_scale.py::test_a_large_flow_keeps_nobody_waiting_who_keeps_the_lease",
    "checkpoint/moves/test_move_scale.py::test_the_moves_of_a_flow_with_thousands_of_topics_fit_into_the_journal",
    "checkpoint/moves/test_move_scale.py::test_the_requests_of_a_failover_do_not_grow_with_groups_times_partitions",
    "checkpoint/moves/test_moves_leave_nothing.py",
    "checkpoint/translation/test_exact_histories.py::test_long_histories_with_everything_in_them_are_exact",
    "checkpoint/translation/test_exact_translation.py::test_a_long_range_that_was_copied_twice_between_two_syncs_is_passed",
    "checkpoint/translation/test_exact_translation.py::test_records_that_the_copy_lost_lead_to_the_next_one_it_has",
    "checkpoint/translation/test_exact_translation.py::test_the_few_survivors_of_a_compacted_log_are_found_however_far_they_lie",
    "config/test_every_key.py::test_the_test_of_a_key_is_there_and_sets_it",
    "configsync/model/test_wanted.py::test_each_part_of_a_large_set_fits_into_a_record",
    "deploy/test_command_line_image.py::test_what_a_command_loads_needs_no_package_that_its_image_lacks",
    "deploy/test_distributions.py",
    "deploy/test_kubernetes.py::test_kubeconform_gets_schemas_that_refer_to_nothing_on_the_web",
    "deploy/test_kubernetes.py::test_kubernetes_takes_every_field_of_them",
    "deploy/test_supply_chain.py::test_a_lock_is_that_of_the_present_dependencies",
    "docs/test_docstring_examples.py",
    "filters/test_java_regex.py::test_patterns_match_what_java_matches",
    "filters/test_linear.py::test_a_list_is_compiled_in_work_that_grows_with_its_length",
    "filters/test_linear.py::test_costly_patterns_of_a_list_have_one_budget_together",
    "filters/test_linear.py::test_long_lists_of_ordinary_patterns_are_accepted",
    "imports/test_strimzi.py::test_aliases_cannot_make_a_small_file_large",
    "kafka/test_reasons_page.py::test_every_reason_of_the_code_is_in_a_table_and_no_other",
    "offsets/test_sync_pacing.py::test_a_steady_load_has_less_than_one_sync_in_a_hundred_records",
    "source/driver/test_epoch.py::test_the_command_queue_of_a_slot_is_bounded",
    "source/driver/test_instruments.py::test_the_calls_of_instruments_do_not_grow_with_records_partitions_or_reports",
    "source/log/test_positions.py::test_gaps_that_left_the_ledger_are_not_remembered_for_ever",
    "source/partitions/test_table.py::test_only_their_owners_write_rows_and_facts",
    "source/pipeline/test_launch.py::test_a_jvm_that_does_not_answer_is_killed_after_a_time",
    "source/pipeline/test_launch.py::test_an_argument_for_java_loads_neither_numpy_nor_pyarrow",
    "source/preserved/test_fill_limits.py::test_a_batch_is_within_the_limit_of_its_topic",
    "source/preserved/test_marker_numbers.py",
    "source/preserved/test_preserved_owners.py",
    "source/task/reading/test_many_backlogs.py::test_what_is_held_stays_bounded_and_every_partition_goes_on",
    "source/task/reading/test_quiet_partitions.py::test_a_backlog_is_read_beside_quiet_partitions_and_keeps_no_place_of_theirs",
    "source/task/reading/test_quiet_partitions.py::test_a_broker_gets_one_request_at_a_time_for_all_its_quiet_partitions",
    "source/task/reading/test_quiet_partitions.py::test_what_comes_while_a_round_is_written_costs_one_fetch",
    "source/task/writing/test_slow_target.py::test_rounds_last_a_moment_once_the_target_has_throttled",
    "source/task/writing/test_slow_target.py::test_a_quiet_partition_does_not_wait_for_the_backlogs_of_others_under_a_producer_quota",
    "source/test_source_gap_pages.py::test_a_ledger_of_more_than_one_message_is_listed_whole",
    "source/topics/test_copy_modes_taken_over.py::test_what_a_former_task_may_still_write_is_waited_for",
    "source/topics/test_recreated_copies.py::test_what_a_deleted_topic_held_of_an_ended_copy_is_a_gap",
    "source/topics/test_source_ends.py::test_many_partitions_are_looked_at_less_often",
    "source/verify/test_pace.py::test_partitions_together_read_no_faster_than_the_limit",
    "source/verify/test_prover.py::test_a_verification_that_was_killed_still_knows_what_it_left_out",
    "source/verify/test_prover.py::test_the_first_record_of_a_range_is_found_in_a_long_copy",
    "source/verify/test_prover.py::test_what_retention_took_of_a_copy_is_passed_and_not_aligned",
    "source/verify/test_state.py::test_what_retention_takes_while_it_is_compared_is_not_passed_by_the_next_run",
    "supervisor/test_living_runs.py::test_runs_that_begin_together_take_addresses_of_their_own",
    "telemetry/test_instruments.py::test_a_gauge_of_names_that_come_and_go_keeps_only_some_that_are_gone",
    "telemetry/test_service_telemetry.py::test_no_code_names_a_metric_outside_the_table",
    "telemetry/test_service_telemetry.py::test_the_work_of_redaction_grows_with_the_text_and_not_with_its_square",
    "test_loops.py::test_hundreds_of_flows_with_one_hub_form_circles_over_all_of_them",
    "test_together.py",
    "verify/test_borders.py::test_a_copy_of_which_every_record_is_changed_is_judged",
    "verify/test_borders.py::test_the_last_record_of_a_range_is_compared",
    "verify/test_one_bit.py::test_one_flipped_bit_does_not_cost_a_second_reading_of_the_whole_source",
    "verify/test_one_bit.py::test_one_wrong_record_among_many_is_named_and_no_other",
)
"""Unit tests that play many examples, or take above a quarter of a second."""
_MORE_LIVES = (
    "random_lives.py::test_two_files_that_copy_a_topic_both_ways_leave_everything_on_both_clusters_once[5]",
    *(f"reverse.py::test_an_interrupted_command_goes_on_where_it_was[{step}]" for step in range(1, 14, 2)),
    *(
        f"whose_copies.py::test_while_the_table_of_ids_cannot_be_trusted_nothing_is_copied_back_or_lost[{each}]"
        for each in (
            *("False-deleted", "False-of_a_later_format", "True-of_a_later_format", "False-damaged"),
            *("True-damaged", "True-forged", "False-unreadable"),
        )
    ),
    *(
        f"whose_copies.py::test_a_mesh_of_three_in_which_everything_fails_by_chance[{seed}]"
        for seed in (1, 2)
    ),
    *(
        f"routes.py::test_records_arrive_once_under_their_routes_whatever_is_killed[{seed}]"
        for seed in (0, 1)
    ),
    *(
        f"both_ways.py::test_a_topic_that_is_created_again_while_it_is_written_gets_everything_once[{each}]"
        for each in ("1-2", "2-2", "3-2", "1-1")
    ),
)
"""Simulated ones, of which `make test` plays others of their kind."""
_TIERS |= {f"tests/simulated/test_{each}": "nightly" for each in _MORE_LIVES}
_TIERS |= {f"tests/{each}": "test" for each in _TEST}
_TIERS |= {f"tests/{each}": "conformance" for each in _CONFORMANCE}
_TIERS |= {f"tests/unit/{each}": "properties" for each in _PROPERTIES}


def tier_of(nodeid: str) -> Tier:
    """Of a test, by its id; `test` for one that is nowhere named."""
    if nodeid.startswith("tests/contract/cluster/") and nodeid.endswith(_OTHER_RELEASES):
        return "nightly"
    named = [begin for begin in _TIERS if nodeid.startswith(begin)]
    return _TIERS[max(named, key=len)] if named else "test"


def beginnings() -> list[str]:
    return list(_TIERS)
