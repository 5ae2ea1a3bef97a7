"""Java's own MirrorClient and RemoteClusterUtils, as a program that prints what they say."""

import subprocess
from pathlib import Path

import pytest

from twinlog.local.download.artifacts import KAFKA_4_TOOLS, ensure_jars
from twinlog.machine import find_java

JAVA_PROGRAM = Path(__file__).with_name("AskMirrorClient.java")


def java_answers(*arguments: str) -> dict[str, list[str]]:
    """What the Java program printed."""
    java = find_java()
    modules = subprocess.run([java.executable, "--list-modules"], capture_output=True, text=True, check=True)
    if "jdk.compiler" not in modules.stdout:
        pytest.skip("this Java has no compiler to run the program with")
    jars = ensure_jars(KAFKA_4_TOOLS, java=java)
    ran = subprocess.run(
        [java.executable, "-cp", jars.class_path, str(JAVA_PROGRAM), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    pairs = (line.split(":", 1) for line in ran.stdout.splitlines() if ":" in line)
    return {what: answer.split() for what, answer in pairs}
