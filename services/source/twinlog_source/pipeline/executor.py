"""The process of an executor in a pod of Kubernetes, as the entrypoint of Spark's own images starts it.

Executors need none of these images: that of source will do, or any other with Java and this package.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import pyspark

from twinlog.machine import spark_environment

_OPTION = "SPARK_JAVA_OPT_"
"""Variables with a number behind it: one option of Java each."""


def executor_command(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The command of its JVM, of what Spark says in variables of the pod. Raises KeyError in no such pod."""
    numbers = sorted(int(name.removeprefix(_OPTION)) for name in environment if name.startswith(_OPTION))
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    before = [environment[name] for name in ("SPARK_CONF_DIR", "SPARK_CLASSPATH") if environment.get(name)]
    return (
        str(Path(environment["JAVA_HOME"], "bin", "java")),
        *(environment[f"{_OPTION}{number}"] for number in numbers),
        f"-Xmx{environment['SPARK_EXECUTOR_MEMORY']}",
        *("-cp", ":".join([*before, str(jars)])),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", environment["SPARK_DRIVER_URL"]),
        *("--executor-id", environment["SPARK_EXECUTOR_ID"]),
        *("--cores", environment["SPARK_EXECUTOR_CORES"]),
        *("--app-id", environment["SPARK_APPLICATION_ID"]),
        *("--hostname", environment["SPARK_EXECUTOR_POD_IP"]),
        *("--resourceProfileId", environment["SPARK_RESOURCE_PROFILE_ID"]),
        *("--podName", environment["SPARK_EXECUTOR_POD_NAME"]),
    )


if __name__ == "__main__":
    os.environ.update(spark_environment())
    java, *_ = command = executor_command(os.environ)
    os.execv(java, command)  # noqa: S606
