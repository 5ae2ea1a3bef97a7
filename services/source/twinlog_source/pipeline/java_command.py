"""The command of Spark's JVM: the same as that of `spark-submit`, which needs a shell script, a second JVM
and half a second to make it."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

_ELSEWHERE = (
    "HADOOP_CONF_DIR",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "SPARK_DRIVER_MEMORY",
    "SPARK_HOME",
    "SPARK_MEM",
    "SPARK_SUBMIT_OPTS",
    "YARN_CONF_DIR",
)
"""Variables with settings of Spark that only Spark's scripts read."""
_PATHS = ("spark.driver.extraClassPath", "spark.driver.extraLibraryPath")
"""Settings that Spark's scripts combine with their own."""
_MAIN_CLASS = "org.apache.spark.deploy.SparkSubmit"
_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
"""The packages of Java that Spark opens for itself (org.apache.spark.launcher.JavaModuleOptions)."""
_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)


def needs_scripts(settings: Mapping[str, str], environment: Mapping[str, str], spark_home: Path) -> bool:
    """Whether Spark's scripts have to start the JVM: because of the user's `settings`, or because there are
    settings that only the scripts read.

    >>> needs_scripts({}, {"SPARK_CONF_DIR": "/etc/spark"}, Path("/no-such-place"))
    True
    >>> needs_scripts({"spark.driver.memory": "1g"}, {}, Path("/no-such-place"))
    False
    """
    return (
        any(name in settings for name in _PATHS)
        or any(environment.get(name) for name in _ELSEWHERE)
        or (spark_home / "conf").exists()
    )


def java_command(java: Path, jars: str, settings: Mapping[str, str], settings_file: Path) -> Sequence[str]:
    """The command that starts the driver's JVM, with the settings that a JVM takes from its command line.
    Spark reads all settings from the file."""

    def options(name: str) -> Sequence[str]:
        return shlex.split(settings.get(f"spark.driver.{name}", ""))

    return (
        str(java),
        "-cp",
        jars,
        f"-Xmx{settings['spark.driver.memory']}",
        *_OPTIONS,
        *options("defaultJavaOptions"),
        *options("extraJavaOptions"),
        _MAIN_CLASS,
        "--properties-file",
        str(settings_file),
        "pyspark-shell",
    )
