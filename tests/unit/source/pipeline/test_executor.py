"""An executor of Spark on Kubernetes is started with what Spark says in the pod's variables."""

import re
from pathlib import Path
from zipfile import ZipFile

import pyspark

from twinlog_source.pipeline.executor import executor_command

VARIABLES = {
    "JAVA_HOME": "/java",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@source-0:17406",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.244.0.7",
    "SPARK_EXECUTOR_POD_NAME": "source-0-exec-1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    **{f"SPARK_JAVA_OPT_{number}": f"-Dopt={number} words" for number in range(12)},
}


def test_options_of_java_are_in_their_order_and_whole() -> None:
    command = executor_command(VARIABLES)
    assert command[0] == "/java/bin/java"
    assert command[1:13] == tuple(f"-Dopt={number} words" for number in range(12))
    assert command[13] == "-Xmx512m"


def test_it_runs_a_class_that_spark_has_with_options_that_it_takes() -> None:
    command = executor_command(VARIABLES)
    name = next(word for word in command if word.startswith("org.apache.spark."))
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("spark-kubernetes_*.jar")
    with ZipFile(jar) as archive:
        assert f"{name.replace('.', '/')}.class" in archive.namelist()
        code = archive.read(f"{name.replace('.', '/')}$.class")
    options = [word for word in command[command.index(name) + 1 :: 2] if word.startswith("--")]
    assert len(options) == 7
    for option in options:
        assert option.encode() in code, f"{option} in {re.findall(rb'--[a-zA-Z-]+', code)}"


def test_sparks_files_and_the_users_classes_come_before_its_jars() -> None:
    command = executor_command(VARIABLES | {"SPARK_CLASSPATH": "/extra/*"})
    conf, extra, jars = command[command.index("-cp") + 1].split(":")
    assert (conf, extra) == ("/opt/spark/conf", "/extra/*")
    assert jars.endswith("/pyspark/jars/*")
