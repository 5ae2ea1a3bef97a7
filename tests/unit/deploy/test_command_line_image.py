"""The image of the command line reads logs with modules of the source service, without what Spark needs."""

import re
import subprocess
import sys
from importlib.metadata import packages_distributions

import pytest
from deploy.supply.locks import read
from packaging.utils import canonicalize_name

from unit.deploy.wheels import PROJECT

ASKED = sorted(
    {
        f"twinlog_source.{module}"
        for file in (PROJECT / "src/twinlog/cli").rglob("*.py")
        for module in re.findall(r'(?<!\w)engine\("([\w.]+)"\)', file.read_text())
        if module != "pipeline.runner"
    }
)
"""Without what preflight loads only where Spark is."""


def absent() -> list[str]:
    """Top-level names of what is installed here and not in the image of the command line."""
    here, tool = (
        {each.name for each in read(PROJECT / "deploy/requirements" / lock)}
        for lock in ("dev.txt", "twinlog.txt")
    )
    return sorted(
        name
        for name, owners in packages_distributions().items()
        if {canonicalize_name(owner) for owner in owners} <= here - tool
    )


def test_commands_load_modules_of_the_source_service_and_its_image_has_no_spark() -> None:
    assert {"twinlog_source.verify.engine", "twinlog_source.state.export"} <= set(ASKED)
    assert {"pyspark", "pyarrow", "uvloop"} <= set(absent())


@pytest.mark.parametrize("module", ASKED)
def test_what_a_command_loads_needs_no_package_that_its_image_lacks(module: str) -> None:
    program = f"import sys; sys.modules.update(dict.fromkeys({absent()!r})); import {module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
