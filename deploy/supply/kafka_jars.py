"""Records the jars of Kafka that tests, the demo and `twinlog local` run: their places in a Maven repository,
and their SHA-256.

To be run when a version changes. The Ivy inside PySpark finds what the artifacts depend on. Look at the
difference before it is committed.
"""

import hashlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from twinlog.local.download.artifacts import JARS, broker_set, tools_set
from twinlog.local.spec import KafkaVersion
from twinlog.machine import find_java

_LOG4J = tuple(
    ("org.apache.logging.log4j", each, "2.25.4") for each in ("log4j-api", "log4j-core", "log4j-slf4j-impl")
)
_RELOAD4J = (("org.slf4j", "slf4j-reload4j", "1.7.36"),)
_TOOLS = ("connect-mirror", "connect-mirror-client", "connect-runtime", "kafka-tools")
_MODULE = (
    '<ivy-module version="2.0"><info organisation="twinlog" module="kafka"/>'
    "<dependencies>{}</dependencies></ivy-module>"
)
_DEPENDENCY = '<dependency org="{}" name="{}" rev="{}" conf="default->default"/>'
_PLACE = "[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"


def wanted() -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Sets with their artifacts. Kafka declares the logging façade only, and Connect 4.x compiles against
    log4j without declaring it."""
    for version in KafkaVersion:
        logging = _RELOAD4J if version.is_before_4 else _LOG4J
        yield broker_set(version), [("org.apache.kafka", "kafka_2.13", version), *logging]
    yield tools_set(), [*(("org.apache.kafka", each, KafkaVersion.V4_3) for each in _TOOLS), *_LOG4J]


def resolved(artifacts: list[tuple[str, str, str]], directory: Path) -> dict[str, str]:
    """The artifacts with all they depend on at run time: SHA-256 by place."""
    module, jars = directory / "ivy.xml", directory / "jars"
    module.write_text(_MODULE.format("".join(_DEPENDENCY.format(*each) for each in artifacts)))
    spark = find_spec("pyspark")
    assert spark is not None
    (ivy,) = Path(str(spark.origin)).parent.glob("jars/ivy-*.jar")
    java = str(find_java().executable)
    command = [java, "-jar", str(ivy), "-ivy", str(module), "-retrieve", f"{jars}/{_PLACE}"]
    subprocess.run(command, check=True)
    found = {}
    for jar in sorted(jars.rglob("*.jar")):
        group, *rest = jar.relative_to(jars).parts
        found["/".join((*group.split("."), *rest))] = hashlib.sha256(jar.read_bytes()).hexdigest()
    return found


def main() -> None:
    recorded = {}
    for name, artifacts in wanted():
        with tempfile.TemporaryDirectory() as directory:
            recorded[name] = resolved(artifacts, Path(directory))
    JARS.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
