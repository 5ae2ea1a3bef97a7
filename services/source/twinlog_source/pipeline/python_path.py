"""From where workers load pyspark. Uses the standard library only, because it runs before pyspark is
imported."""

from collections.abc import Sequence
from pathlib import Path


def unpacked(python_path: Sequence[str]) -> list[str]:
    """Return the path with the installed package instead of `pyspark.zip`, if Spark is the one of that
    package.

    Spark puts the archive first. Python compiles an archive's modules in every process: half a second of CPU
    for the fork server, and a tenth for each worker. Another Spark has its own archive, which is kept.
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
