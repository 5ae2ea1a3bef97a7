"""How Kafka's own tools, Connect and MirrorMaker 2 are run: `python -m twinlog.local.tools TOOL …`.

Downloads the JARs if they are missing.
"""

import os
import sys
from pathlib import Path
from typing import Final

from twinlog.local.download.artifacts import KAFKA_4_TOOLS, broker_artifacts, ensure_jars
from twinlog.local.spec import KafkaVersion
from twinlog.machine import find_java

SERVICE_LOGGING: Final = Path(__file__).with_name("broker_log4j2.properties")
TOOL_LOGGING: Final = Path(__file__).with_name("tools_log4j2.properties")
QUICK_START: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Without the JVM's optimising compiler: ready sooner, slower later."""
CONSOLE_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
MIRROR_MAKER: Final = "org.apache.kafka.connect.mirror.MirrorMaker"
OF_BROKER: Final = "kafka.admin.ConfigCommand"
"""The one tool whose class is among the broker's JARs."""
TOOLS: Final = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-configs": OF_BROKER,
    "kafka-console-consumer": CONSOLE_CONSUMER,
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "connect-mirror-maker": MIRROR_MAKER,
}
"""The class of each script, by its name without `.sh`."""


def java_command(main_class: str, *arguments: str, logging: Path, jvm: tuple[str, ...]) -> list[str]:
    """The command, with the options `jvm` of the JVM. Raises ProcessError."""
    java = find_java()
    jars = broker_artifacts(KafkaVersion.V4_3.value) if main_class == OF_BROKER else KAFKA_4_TOOLS
    return [
        str(java.executable),
        *jvm,
        f"-Dlog4j2.configurationFile={logging}",
        "-cp",
        ensure_jars(jars, java=java).class_path,
        main_class,
        *arguments,
    ]


def tool_command(name: str, *arguments: str) -> list[str]:
    """The command of a script; `name` is one of TOOLS. Raises ProcessError."""
    main_class = TOOLS[name]
    logging = SERVICE_LOGGING if main_class == MIRROR_MAKER else TOOL_LOGGING
    return java_command(main_class, *arguments, logging=logging, jvm=("-Xmx512m", *QUICK_START))


def main() -> None:
    name, *arguments = sys.argv[1:] or ("",)
    if name not in TOOLS:
        raise SystemExit(f"usage: python -m twinlog.local.tools {'|'.join(TOOLS)} ARGUMENTS")
    command = tool_command(name, *arguments)
    os.execv(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
