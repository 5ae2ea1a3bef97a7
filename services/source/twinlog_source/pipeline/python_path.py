"""Where workers load pyspark from. Standard library only, and nothing of pyspark: it is asked before that is
loaded.
"""

from collections.abc import Sequence
from pathlib import Path


def unpacked(python_path: Sequence[str]) -> list[str]:
    """The path with the installed package in place of `pyspark.zip`, where Spark is the one of that package.

    Spark names the archive first. Python compiles its modules in every process: half a second of a core for
    the process that workers are forked from, and a tenth for each of them. A Spark that is not this package's
    has its own archive, which is kept.
    """
    found = []
    for entry in python_path:
        archive = Path(entry)
        package = archive.parent.parent.parent
        is_ours = archive.name == "pyspark.zip" and package.name == "pyspark"
        if is_ours and (package / "__init__.py").is_file():
            entry = str(package.parent)
        found.append(entry)
    return found
