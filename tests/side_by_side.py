"""Which tests run in the same process when files run side by side (`make test`)."""

from xdist.scheduler import LoadScopeScheduling

TOGETHER = ("tests/e2e/one_run/",)
"""Directories whose tests share something that takes seconds to start."""


class FilesSideBySide(LoadScopeScheduling):  # type: ignore[misc]
    """All tests of a file run in one process, and so share what the file's fixtures start.

    pytest-xdist's own `loadgroup` has no effect with pytest 9.2: it changes names that are fixed there.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, _, _ = nodeid.partition("::")
        return next((directory for directory in TOGETHER if file.startswith(directory)), file)
