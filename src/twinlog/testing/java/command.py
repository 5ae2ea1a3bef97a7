"""How a class of Kafka 4.3's tools, Connect or MM2 is run."""

from pathlib import Path
from typing import Final

from twinlog import local
from twinlog.local.download.artifacts import KAFKA_4_TOOLS, ensure_jars
from twinlog.machine.java import find_java

SERVICE_LOGGING: Final = Path(local.__file__).with_name("broker_log4j2.properties")
QUICK_START: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Without the JVM's optimising compiler: ready sooner, slower later."""


def java_command(main_class: str, *arguments: str, logging: Path, jvm: tuple[str, ...]) -> list[str]:
    """The command, with the options `jvm` of the JVM. Downloads the JARs if they are missing. Raises
    ProcessError."""
    java = find_java()
    path = ensure_jars(KAFKA_4_TOOLS, java=java).class_path
    return [
        str(java.executable),
        *jvm,
        f"-Dlog4j2.configurationFile={logging}",
        "-cp",
        path,
        main_class,
        *arguments,
    ]
