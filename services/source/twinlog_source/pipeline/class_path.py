"""The jars that Spark's JVM starts with.

A JVM keeps the table of contents of each jar that it has opened, and a search for a resource opens all jars.
For Spark's 280 jars this takes 18 MB, and a tenth of the start. A job on RDDs needs a hundred of them.
"""

from importlib.util import find_spec
from pathlib import Path

_OF_RDDS = (
    "audience-annotations",
    "avro-1",
    "chill",
    "commons-c",
    "commons-io",
    "commons-lang3",
    "commons-text",
    "compress-lzf",
    "failureaccess",
    "hadoop-",
    "ivy-",
    "jackson-annotations",
    "jackson-core",
    "jackson-databind",
    "jackson-dataformat",
    "jackson-module",
    "jakarta.",
    "javax.servlet",
    "jcl-",
    "json4s",
    "jsr305",
    "jul-",
    "kryo",
    "log4j",
    "lz4",
    "metrics-",
    "minlog",
    "netty-",
    "objenesis",
    "oro-",
    "paranamer",
    "pickle",
    "py4j",
    "RoaringBitmap",
    "scala-library",
    "scala-xml",
    "slf4j",
    "snakeyaml-2",
    "snappy",
    "spark-co",
    "spark-kvstore",
    "spark-launcher",
    "spark-network",
    "spark-tags",
    "spark-udf-worker-core",
    "spark-unsafe",
    "stream-",
    "xbean",
    "zstd",
)
"""Spark's core and its dependencies: the beginnings of their names."""
_NOT_OF_RDDS = ("commons-compiler", "spark-connect")


def spark_home() -> Path:
    """The directory of the Spark that is installed with pyspark."""
    package = find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent


def class_path(*, every_jar: bool = False) -> str:
    """The jars in a fixed order. Spark passes `jars/*`, which Java expands in directory order. In a container
    this order differs from that at build time, and the JVM would reject the class archive.

    The jars that a job on RDDs needs come first, so that the archive fits both; with `every_jar` the others
    follow.
    """
    jars = sorted(spark_home().glob("jars/*.jar"))
    # As Spark does: before older copies of its classes in other jars.
    jars.sort(key=lambda jar: (not _is_of_rdds(jar.name), not jar.name.startswith("slf4j-api-")))
    return ":".join(str(jar) for jar in jars if every_jar or _is_of_rdds(jar.name))


def _is_of_rdds(name: str) -> bool:
    return name.startswith(_OF_RDDS) and not name.startswith(_NOT_OF_RDDS)
