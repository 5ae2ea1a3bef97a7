"""The ZooKeeper server of a cluster of brokers before KRaft, from the brokers' own jars."""

from twinlog.local.broker_properties import NodePlace
from twinlog.local.processes.process import GuardedProcess
from twinlog.local.spec import ADDRESS
from twinlog.machine.java import Java
from twinlog.properties_text import render_properties


def start_zookeeper(node: NodePlace, *, java: Java, class_path: str) -> GuardedProcess:
    """Start it beside this broker, on its controller port. Brokers wait until it listens."""
    file = node.directory / "zookeeper.properties"
    properties = {
        "dataDir": str(node.directory / "zookeeper"),
        "clientPort": str(node.controller_port),
        "clientPortAddress": ADDRESS,
        "admin.enableServer": "false",
        "maxClientCnxns": "0",
    }
    file.write_text(render_properties(properties))
    command = [
        *(str(java.executable), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *("-cp", class_path),
        *("org.apache.zookeeper.server.ZooKeeperServerMain", str(file)),
    ]
    return GuardedProcess(command, output=node.directory / "zookeeper.log")
