"""Workers load pyspark from the installed package, never a Spark's that is not this package's from there."""

from pathlib import Path

from twinlog_source.pipeline.python_path import unpacked


def test_the_archive_of_the_installed_package_gives_way_to_the_package(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "pyspark"
    archive = package / "python" / "lib" / "pyspark.zip"
    archive.parent.mkdir(parents=True)
    archive.touch()
    (package / "__init__.py").touch()
    bridge = str(archive.with_name("py4j-src.zip"))
    assert unpacked(["/job", str(archive), bridge]) == ["/job", str(package.parent), bridge]


def test_the_archive_of_another_spark_is_kept(tmp_path: Path) -> None:
    archives = [tmp_path / home / "python" / "lib" / "pyspark.zip" for home in ("spark-4.1", "pyspark")]
    for archive in archives:
        archive.parent.mkdir(parents=True)
        archive.touch()
    path = [str(archive) for archive in archives]
    assert unpacked(path) == path
