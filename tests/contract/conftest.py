"""The contract suites are plain modules: their asserts need rewriting as those of test files get it."""

import pytest

for _suite in (
    "topic_admin_contract",
    "config_admin_contract",
    "acl_admin_contract",
    "quota_admin_contract",
    "group_admin_contract",
    "log_admin_contract",
    "log_reader_contract",
    "log_writer_contract",
    "wire_contract",
    "kafka_rig",
):
    pytest.register_assert_rewrite(f"contract.cluster.{_suite}")
