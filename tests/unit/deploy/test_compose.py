"""What the compose files tell programs, held against these: commands, ports, paths, what is provisioned."""

import json
import re
import subprocess
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import typer
import yaml
from jsonschema import Draft202012Validator

from twinlog.cli import app
from twinlog.config import Service, load
from twinlog.config.keys.table import default_port
from twinlog.service.options import parse_options, parse_override
from unit.cases import about
from unit.deploy.compose_files import (
    BASE,
    COMPOSE,
    DIAL_OUT,
    EACH,
    FILES,
    OBSERVABILITY,
    SPARK,
    merged,
    recipe,
)
from unit.deploy.wheels import PROJECT

OURS = [(file, name) for file, name in EACH if merged(file, name)["image"].startswith("twinlog")]
FOREIGN_PORTS = {"prometheus": 9090, "grafana": 3000}
"""Where these listen when nobody tells them otherwise."""
SOURCE, TARGET = 0, 1


def image_command(image: str) -> list[str]:
    """What the Dockerfile starts where compose gives no command."""
    told = re.findall(r"^CMD (\[.+\])$", recipe(image.partition(":")[0]), re.MULTILINE)
    words: list[str] = json.loads(told[-1])
    return words


def mounted(file: str, name: str) -> dict[str, str]:
    """Path in the container -> path beside the compose file, or the name of a volume."""
    return {each.split(":")[TARGET]: each.split(":")[SOURCE] for each in merged(file, name)["volumes"]}


def listens(file: str, name: str) -> set[int]:
    """Ports that the program in the container opens."""
    container = merged(file, name)
    if name in FOREIGN_PORTS:
        told = [*container.get("command", ()), *container.get("environment", {})]
        assert not [word for word in told if "listen" in word or "HTTP_PORT" in word]
        return {FOREIGN_PORTS[name]}
    if name == "ui":
        words = container["command"]
        return {int(words[words.index("--listen") + 1].rpartition(":")[2])}
    if name.startswith("kafka"):
        return {int(port) for port in re.findall(r":(\d+)", container["environment"]["KAFKA_LISTENERS"])}
    return {default_port(Service(name))}


def test_a_command_is_one_that_the_program_takes() -> None:
    for file, name in OURS:
        with about(file, name):
            container = merged(file, name)
            if "entrypoint" in container:
                starter, what, *_ = container["entrypoint"]
                assert starter == "spark-class" or what in mounted(file, name), "the script is mounted"
                continue
            program, words = container["image"].partition(":")[0], container.get("command")
            words = image_command(container["image"]) if words is None else words
            if program != "twinlog":
                options = parse_options(program.removeprefix("twinlog-"), words, environment={})
                assert str(options.config) in mounted(file, name)
                continue
            if words == ["--help"]:
                continue
            command: Any = typer.main.get_command(app).get_command(None, words[0])  # type: ignore[attr-defined]
            command.make_context(words[0], list(words[1:]))


def test_the_command_line_finds_the_file_where_its_image_looks_for_it() -> None:
    told = re.findall(r"TWINLOG_CONFIG=(\S+)", recipe("twinlog"))
    for name in ("ui", "twinlog"):
        assert told[-1] in mounted(BASE, name)
        assert "environment" not in merged(BASE, name)


@pytest.mark.parametrize(
    ("file", "name"), [each for each in EACH if FILES[each[0]]["services"][each[1]].get("ports")]
)
def test_every_published_port_is_one_that_the_program_opens(file: str, name: str) -> None:
    published = {int(port.rpartition(":")[2]) for port in merged(file, name)["ports"]}
    assert published <= listens(file, name)


@pytest.mark.parametrize("name", ["kafka-a", "kafka-b"])
def test_a_broker_is_reached_by_the_names_that_it_tells(name: str) -> None:
    environment = merged(BASE, name)["environment"]
    listeners = dict(re.findall(r"(\w+)://[^:,]*:(\d+)", environment["KAFKA_LISTENERS"]))
    told = {
        each: (host, port)
        for each, host, port in re.findall(
            r"(\w+)://([\w-]+):(\d+)", environment["KAFKA_ADVERTISED_LISTENERS"]
        )
    }
    assert told == {"INSIDE": (name, listeners["INSIDE"]), "OUTSIDE": ("localhost", listeners["OUTSIDE"])}
    assert merged(BASE, name)["ports"] == [f"127.0.0.1:{listeners['OUTSIDE']}:{listeners['OUTSIDE']}"]
    alias = name.removeprefix("kafka-").upper()
    assert (
        f"{alias}.bootstrap.servers = {name}:{listeners['INSIDE']}"
        in (COMPOSE / "mm2.properties").read_text()
    )
    check = " ".join(merged(BASE, name)["healthcheck"]["test"])
    assert f"/dev/tcp/127.0.0.1/{listeners['INSIDE']}" in check


def test_a_source_that_lets_nobody_in_is_reached_by_those_beside_it_alone() -> None:
    document = FILES[DIAL_OUT]
    assert document["services"].keys() == FILES[BASE]["services"].keys(), "none stays in a network of both"
    networks = {name: set(each["networks"]) for name, each in document["services"].items()}
    (inside,) = networks["kafka-a"]
    assert document["networks"][inside]["internal"]
    assert networks["kafka-b"] == networks["ui"] == {"way-out"}
    beside = {name for name, each in networks.items() if inside in each} - {"kafka-a"}
    assert beside == {*map(str, Service), "twinlog"}
    assert all("way-out" in networks[name] for name in beside)


def test_a_source_on_the_spark_cluster_finds_its_master_and_is_found_by_its_own_name(tmp_path: Path) -> None:
    subprocess.run(["/bin/sh", str(COMPOSE / "make-spark-secret.sh"), str(tmp_path)], check=True)
    made = tmp_path / "spark.properties"
    assert made.stat().st_mode & 0o077 == 0
    told = parse_options("source", merged(SPARK, "source")["command"], environment={})
    words = [each.replace("$$", "$") for each in told.overrides]
    # Where the container has it.
    words = [each.replace("/etc/twinlog/spark/", f"{tmp_path}/") for each in words]
    overrides = dict(map(parse_override, words))
    file = COMPOSE / "mm2.properties"
    configuration = load(file, environ={"HOSTNAME": "box"}, overrides=overrides, strict=True)
    assert not configuration.notices
    spark, master = configuration.spark, merged(SPARK, "spark-master")
    port = master["command"][master["command"].index("--port") + 1]
    assert spark.master == f"spark://{master['hostname']}:{port}"
    assert merged(SPARK, "spark-worker")["command"][-1] == spark.master
    assert (spark.conf["spark.driver.host"], str(spark.worker_endpoint)) == ("box", "box:17405")
    cluster = dict(line.split("=", 1) for line in made.read_text().splitlines())
    assert spark.conf["spark.authenticate.secret"] == cluster["spark.authenticate.secret"] != ""
    assert cluster["spark.master.rest.enabled"] == "false", "it asks nobody for the secret"
    for name in ("source", "spark-master", "spark-worker"):
        assert mounted(SPARK, name)["/etc/twinlog/spark"] == "spark"


def test_prometheus_finds_its_file_its_rules_and_the_services() -> None:
    (file,) = [
        PurePosixPath(word.partition("=")[2])
        for word in merged(OBSERVABILITY, "prometheus")["command"]
        if word.startswith("--config.file=")
    ]
    folder = COMPOSE / mounted(OBSERVABILITY, "prometheus")[str(file.parent)]
    document = yaml.safe_load((folder / file.name).read_text())
    assert all((folder / rules).is_file() for rules in document["rule_files"])
    (job,) = document["scrape_configs"]
    assert job["job_name"] == "twinlog"
    looked_up = {name: each for each in job["dns_sd_configs"] for name in each["names"]}
    assert {name: each["port"] for name, each in looked_up.items()} == {
        str(service): default_port(service, "metrics.listen") for service in Service
    }
    assert {each["type"] for each in looked_up.values()} == {"A"}, "a name of two replicas is two targets"
    assert set(Service) <= set(FILES[BASE]["services"])


def test_grafana_finds_prometheus_and_every_board() -> None:
    places = mounted(OBSERVABILITY, "grafana")
    provisioning = COMPOSE / places["/etc/grafana/provisioning"]
    (provider,) = yaml.safe_load((provisioning / "dashboards/twinlog.yaml").read_text())["providers"]
    boards = COMPOSE / places[provider["options"]["path"]]
    assert len(list(boards.glob("*.json"))) == 7
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text())["datasources"]
    assert source["url"] == f"http://prometheus:{FOREIGN_PORTS['prometheus']}"
    for board in boards.glob("*.json"):
        document = json.loads(board.read_text())
        (chosen,) = [each for each in document["templating"]["list"] if each["type"] == "datasource"]
        assert chosen["query"] == source["type"], board.name
        asked = {panel["datasource"]["uid"] for panel in document["panels"]}
        assert asked == {f"${{{chosen['name']}}}"}, board.name
    home = PurePosixPath(
        merged(OBSERVABILITY, "grafana")["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    )
    assert str(home.parent) == provider["options"]["path"]
    assert (boards / home.name).is_file()


def test_the_page_of_compose_names_files_that_are_where_its_commands_are_run() -> None:
    page = (PROJECT / "docs/compose.md").read_text()
    named = set(re.findall(r"docker compose ((?:-f \S+ )+)", page))
    files = {word for each in named for word in each.split() if word != "-f"}
    assert files
    assert all((COMPOSE / file).is_file() for file in files), "they are run in deploy/compose"


def test_no_container_takes_all_memory_and_processes_of_the_machine() -> None:
    for file, name in EACH:
        with about(file, name):
            container = merged(file, name)
            assert container["pids_limit"] <= 1024
            size = re.fullmatch(r"(\d+)(m|g)", container["mem_limit"])
            assert size is not None
            assert int(size[1]) * {"m": 1, "g": 1024}[size[2]] <= 4096


@pytest.mark.parametrize("file", FILES)
def test_compose_takes_every_field(file: str) -> None:
    schema = files("check_jsonschema.builtin_schemas.vendor") / "compose-spec.json"
    validator = Draft202012Validator(json.loads(schema.read_text()))
    validator.validate(FILES[file])
    misspelt = {**FILES[file], "services": {"one": {"image": "one", "heathcheck": {}}}}
    [error] = validator.iter_errors(misspelt)
    assert "heathcheck" in error.message
