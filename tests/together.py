"""Which tests run in one process, one after the other, where `pytest -n` runs several processes.

Groups of pytest-xdist (`--dist loadgroup`) are names within the ids of tests, which pytest 9.2 ignores.
"""

from collections import Counter
from typing import Any

from xdist.scheduler import LoadScopeScheduling

_TLS_AND_SASL = "clusters with TLS and SASL"
_GUARDED = "clusters with rights of their own"
_SHARED = {
    "tests/e2e/one_run/": "one run",
    "tests/e2e/test_secured_flow.py": _TLS_AND_SASL,
    "tests/integration/kafka/test_kafka_security.py": _TLS_AND_SASL,
    "tests/contract/cluster/test_real_cluster.py": _TLS_AND_SASL,
    "tests/integration/configsync/test_configsync_acls.py": _GUARDED,
    "tests/integration/checkpoint/test_checkpoint_operations.py": _GUARDED,
    "tests/integration/cli/test_preflight_command.py": _GUARDED,
    "tests/integration/source/test_read_only_source.py": _GUARDED,
}
"""Files, and directories of them, that share what takes seconds to start. Else the tests of a file do."""
_MOST_UNIT_TESTS = 40
"""They start nothing, so those of a file are split."""


class Together(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._scopes: dict[str, str] = {}
        self._unit_tests: Counter[str] = Counter()

    def _split_scope(self, nodeid: str) -> str:
        """The scheduler's method: asked again and again, first in the order of the tests."""
        if nodeid not in self._scopes:
            self._scopes[nodeid] = self._scope(nodeid.partition("::")[0])
        return self._scopes[nodeid]

    def _scope(self, file: str) -> str:
        if file.startswith("tests/unit/"):
            self._unit_tests[file] += 1
            return f"{file} {self._unit_tests[file] // _MOST_UNIT_TESTS}"
        return next((shared for begin, shared in _SHARED.items() if file.startswith(begin)), file)
