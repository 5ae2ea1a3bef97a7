"""What the JVM and its bridge say in the service's log, and why a JVM has ended."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from twinlog_source.pipeline.jvm_log import JvmOutput, silence_py4j, words_of


@pytest.fixture
def restored() -> Iterator[None]:
    root, bridge = logging.getLogger(), logging.getLogger("py4j")
    filters, level = list(root.filters), bridge.level
    yield
    root.filters[:] = filters
    bridge.setLevel(level)


@pytest.mark.usefixtures("restored")
def test_py4j_is_silent_and_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    silence_py4j()
    logging.getLogger("py4j.clientserver").error("lost")
    # As py4j does it: by the root logger itself.
    exec(compile("import logging\nlogging.info('lost')", "/site-packages/py4j/java_gateway.py", "exec"))
    logging.getLogger().info("kept")
    assert [record.message for record in caplog.records] == ["kept"]


MAIN = "Error: Could not find or load main class"


@pytest.mark.parametrize(
    ("written", "words"),
    [
        pytest.param(
            [
                "Picked up JAVA_TOOL_OPTIONS: -Dstore.password=sesame",
                "The Java thread stack size specified is too small. Specify at least 136k",
                "Error: Could not create the Java Virtual Machine.",
                "Error: A fatal exception has occurred. Program will exit.",
            ],
            ["The Java thread stack size specified is too small. Specify at least 136k"],
            id="one line and an epilogue",
        ),
        pytest.param(
            ["Error occurred during initialization of VM", "Could not reserve enough space for object heap"],
            ["Error occurred during initialization of VM", "Could not reserve enough space for object heap"],
            id="two lines",
        ),
        pytest.param(
            [
                'Error: Not allowed to set -Xmx (was -Xmx1g "-Dstore.password=open (sesame)"). Use another.',
                "",
                "WARNING: Using incubator modules: jdk.incubator.vector",
                "Usage: spark-submit [options] <app jar | python file | R file> [app arguments]",
                "Options:",
                "  --master MASTER_URL         spark://host:port, yarn",
            ],
            ["Error: Not allowed to set -Xmx. Use another."],
            id="Spark refuses an option and continues about its usage",
        ),
        pytest.param(
            [f"{MAIN} sesame", "Caused by: java.lang.ClassNotFoundException: sesame"],
            ["an option of the JVM holds a space: what follows it was taken for the class to start"],
            id="a password with a space",
        ),
        pytest.param(
            [f"{MAIN} org.apache.spark.deploy.SparkSubmit", "Caused by: java.lang.ClassNotFoundException: x"],
            [f"{MAIN} org.apache.spark.deploy.SparkSubmit", "Caused by: java.lang.ClassNotFoundException: x"],
            id="Spark is not there",
        ),
        pytest.param(
            [
                'Exception in thread "main" java.lang.IllegalStateException: -Dstore.password=sesame',
                "\tat org.apache.spark.Some.main(Some.java:1)",
                "Caused by: it is late",
                "\t... 3 more",
            ],
            [
                'Exception in thread "main" java.lang.IllegalStateException: -Dstore.password=…',
                "Caused by: it is late",
            ],
            id="a trace",
        ),
        pytest.param(
            [
                "#",
                "# There is insufficient memory for the Java Runtime Environment to continue.",
                "# Native memory allocation (mmap) failed to map 4096 bytes.",
                "# An error report file with more information is saved as:",
                "# /tmp/hs_err_pid7.log",
            ],
            [
                "There is insufficient memory for the Java Runtime Environment to continue.",
                "Native memory allocation (mmap) failed to map 4096 bytes.",
            ],
            id="no memory",
        ),
        pytest.param([], [], id="nothing"),
    ],
)
def test_a_jvm_that_ended_has_said_why(
    written: list[str], words: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert JvmOutput(io.BytesIO("\n".join(written).encode())).last_words() == "; ".join(words)
    assert "sesame" not in caplog.text


def test_what_java_failed_at_is_taken_from_its_trace() -> None:
    trace = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: no plugin with -Dstore.password=sesame
\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:593)
Caused by: java.lang.ClassNotFoundException: no.such.Plugin
\tat java.base/java.lang.Class.forName(Class.java:467)
\t... 12 more
"""
    assert words_of(trace) == (
        "org.apache.spark.SparkException: no plugin with -Dstore.password=…; "
        "Caused by: java.lang.ClassNotFoundException: no.such.Plugin"
    )
    assert words_of("An error occurred while calling o1.x\n") == ""


def test_last_words_are_bounded() -> None:
    words = JvmOutput(io.BytesIO(b"x" * 10_000)).last_words()
    assert (len(words), words[-1]) == (300, "…")


def test_a_tasks_lines_keep_their_event_and_are_nobodys_last_words(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    line = json.dumps({"level": "info", "event": "copied", "logger": "twinlog_source.task", "records": 3})
    assert JvmOutput(io.BytesIO(f"{line}\n".encode())).last_words() == ""
    assert [(record.name, record.message) for record in caplog.records] == [("twinlog_source.task", "copied")]


def test_a_line_that_is_no_log_line_of_a_task_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """The thread that reads is the only one: were it gone, the JVM would wait for room in the pipe."""
    caplog.set_level(logging.INFO)
    deep = '{"event":' + "[" * 100_000
    clash = json.dumps({"event": "copied", "process": 7, "msg": "x", "levelname": "y", "records": 3})
    output = JvmOutput(io.BytesIO(f"{deep}\n{clash}\nthe end\n".encode()))
    assert output.last_words() == "the end"
    (copied,) = [record for record in caplog.records if record.message == "copied"]
    assert (copied.task_process, copied.records) == (7, 3)  # type: ignore[attr-defined]
