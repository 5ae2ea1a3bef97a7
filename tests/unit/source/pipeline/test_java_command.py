"""The command of Spark's JVM: what the user sets takes effect as with Spark's own scripts."""

from pathlib import Path

import pytest

from twinlog_source.pipeline.java_command import java_command, needs_scripts
from twinlog_source.pipeline.settings import spark_settings

JAVA = Path("/opt/java/bin/java")
FILE = Path("/tmp/twinlog-spark-x/spark.properties")


def command(**extra: str) -> list[str]:
    settings = spark_settings(
        app_name="test",
        master="local[*]",
        threads=4,
        directory=FILE.parent,
        jvm_options='"-XX:SharedArchiveFile=/opt/an archive.jsa" -Xshare:auto',
        extra={f"spark.driver.{name}": value for name, value in extra.items()},
    )
    return list(java_command(JAVA, "/opt/a.jar:/opt/b.jar", settings, FILE))


def test_it_starts_spark_with_the_class_path_and_the_file_of_settings() -> None:
    made = command()
    assert made[:3] == [str(JAVA), "-cp", "/opt/a.jar:/opt/b.jar"]
    assert made[-4:] == [
        "org.apache.spark.deploy.SparkSubmit",
        "--properties-file",
        str(FILE),
        "pyspark-shell",
    ]


def test_an_option_may_contain_spaces() -> None:
    assert "-XX:SharedArchiveFile=/opt/an archive.jsa" in command()


def test_memory_and_options_of_the_user_take_the_place_of_ours() -> None:
    made = command(memory="2g", extraJavaOptions="-Dname='a b' -Xss1m", defaultJavaOptions="-Dby=default")
    assert "-Xmx2g" in made
    assert "-Xmx512m" not in made
    assert made.index("-Dby=default") < made.index("-Dname=a b") < made.index("-Xss1m")
    assert "-XX:+UseSerialGC" not in made


@pytest.mark.parametrize(
    "variable",
    ["SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS"],
)
def test_settings_that_only_the_scripts_read_are_left_to_them(variable: str, tmp_path: Path) -> None:
    assert needs_scripts({}, {variable: "given"}, tmp_path)
    assert not needs_scripts({}, {variable: "", "SPARK_LOCAL_IP": "127.0.0.1"}, tmp_path)


def test_a_configuration_beside_the_jars_and_paths_of_the_user_are_left_to_the_scripts(
    tmp_path: Path,
) -> None:
    assert needs_scripts({"spark.driver.extraClassPath": "/opt/own.jar"}, {}, tmp_path)
    (tmp_path / "conf").mkdir()
    assert needs_scripts({}, {}, tmp_path)
