"""Which tests run in the same process when files run side by side (`make test`)."""

from xdist.scheduler import LoadScopeScheduling

_TLS_AND_SASL = "clusters with TLS and SASL"
_GUARDED = "clusters with rights of their own"
TOGETHER = {
    "tests/e2e/one_run/": "one run",
    "tests/e2e/test_secured_flow.py": _TLS_AND_SASL,
    "tests/integration/kafka/test_kafka_security.py": _TLS_AND_SASL,
    "tests/contract/cluster/test_real_cluster.py": _TLS_AND_SASL,
    "tests/integration/configsync/test_configsync_access.py": _GUARDED,
    "tests/integration/configsync/test_configsync_acls.py": _GUARDED,
    "tests/integration/checkpoint/test_checkpoint_operations.py": _GUARDED,
    "tests/integration/cli/test_preflight_command.py": _GUARDED,
    "tests/integration/source/test_read_only_source.py": _GUARDED,
}
"""Files, and directories of them, that share what takes seconds to start."""


class FilesSideBySide(LoadScopeScheduling):  # type: ignore[misc]
    """All tests of a file run in one process, and so share what the file's fixtures start.

    pytest-xdist's own `loadgroup` has no effect with pytest 9.2: it changes names that are fixed there.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, _, _ = nodeid.partition("::")
        return next((shared for begin, shared in TOGETHER.items() if file.startswith(begin)), file)
