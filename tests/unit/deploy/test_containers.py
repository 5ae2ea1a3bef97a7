"""What the image and compose files promise, held against the code they start."""

import re
import tomllib
from importlib.metadata import requires

import pytest
import typer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from twinlog import __version__
from twinlog.cli import app
from twinlog.config import Service, load
from twinlog.config.keys_twinlog import DEFAULT_METRICS_PORTS, DEFAULT_PORTS
from unit.deploy.wheels import PROJECT, Distribution, distribution, needed_by

COMPOSE = (PROJECT / "deploy/compose/compose.yaml").read_text()
MM2_FILE = PROJECT / "deploy/compose/mm2.properties"
PROBE = "twinlog.service.probe"
TOOL = PROJECT / "deploy/twinlog/Dockerfile"
INSTALLED = re.compile(r" (\.(?:/\S+)?)(?= )")
"""In the line of a Dockerfile that installs our own distributions: the directories."""
PINS = {"twinlog-source": "source.txt", "twinlog": "twinlog.txt"}

services = pytest.mark.parametrize("service", list(Service))
images = pytest.mark.parametrize("image", [*(f"twinlog-{service}" for service in Service), "twinlog"])


def dockerfile(service: Service) -> str:
    return (PROJECT / "services" / service / "Dockerfile").read_text()


def installed_in(image: str) -> list[Distribution]:
    """Our distributions in an image, those that its `pip check` looks at."""
    text = TOOL.read_text() if image == "twinlog" else dockerfile(Service(image.removeprefix("twinlog-")))
    command = next(line for line in text.splitlines() if "--prefix" in line)
    return [distribution(PROJECT / directory) for directory in INSTALLED.findall(command)]


def compose_sections() -> dict[str, str]:
    """The text below `services:` by service name."""
    body = COMPOSE.partition("\nservices:\n")[2].partition("\nvolumes:\n")[0]
    parts = re.split(r"^  ([a-z-]+):\n", body, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def pinned(name: str) -> dict[str, str]:
    """Versions by canonical name, of a file of deploy/requirements and of those it includes."""
    versions: dict[str, str] = {}
    for line in (PROJECT / "deploy/requirements" / name).read_text().splitlines():
        if line.startswith("-r "):
            versions |= pinned(line.removeprefix("-r "))
        elif not line.startswith("#"):
            package, _, version = line.partition("==")
            versions[canonicalize_name(package)] = version
    return versions


def test_compose_starts_both_clusters_and_every_service() -> None:
    assert set(compose_sections()) == {"kafka-a", "kafka-b", "twinlog", "ui", *Service}
    at_once = {name for name, section in compose_sections().items() if "profiles:" not in section}
    assert at_once == {"kafka-a", "kafka-b", "ui", *Service}


def test_the_live_page_runs_from_the_image_of_the_command_line() -> None:
    section = compose_sections()["ui"]
    assert "dockerfile: deploy/twinlog/Dockerfile" in section
    words = re.findall(r'"([^"]+)"', section.partition("command: [")[2].partition("]")[0])
    command = typer.main.get_command(app).get_command(None, words[0])  # type: ignore[attr-defined]
    options = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words[1:] if word.startswith("--")} <= options


def test_every_published_port_is_on_loopback() -> None:
    published = [port for line in re.findall(r"ports: \[(.+)\]", COMPOSE) for port in line.split(", ")]
    assert len(published) == len(set(compose_sections()) - {"twinlog"})
    assert all(re.fullmatch(r'"127\.0\.0\.1:(\d+):\1"', port) for port in published)


def test_the_clusters_have_different_ids() -> None:
    ids = re.findall(r"CLUSTER_ID: (\S+)", COMPOSE)
    assert len(ids) == len(set(ids)) == 2


@services
def test_compose_publishes_and_probes_the_port_of_the_service(service: Service) -> None:
    section, port = compose_sections()[service], DEFAULT_PORTS[service]
    assert f'"127.0.0.1:{port}:{port}"' in section
    assert f'"{PROBE}", "127.0.0.1:{port}"' in section
    assert f"dockerfile: services/{service}/Dockerfile" in section


def test_the_shared_file_is_free_of_problems_and_says_where_each_service_is() -> None:
    configuration = load(MM2_FILE, environ={}, strict=True)
    assert not configuration.notices
    assert [str(entry.flow) for entry in configuration.enabled_flows] == ["A->B"]
    for service, endpoints in configuration.endpoints.items():
        assert str(endpoints.listen) == f"0.0.0.0:{DEFAULT_PORTS[service]}"
        assert str(endpoints.endpoint) == f"{service}:{DEFAULT_PORTS[service]}"
        assert str(endpoints.metrics_listen) == f"0.0.0.0:{DEFAULT_METRICS_PORTS[service]}"


def test_images_carry_the_version_of_the_code() -> None:
    assert set(re.findall(r"TWINLOG_VERSION:-([^}]+)}", COMPOSE)) == {__version__}


@services
def test_an_image_runs_its_own_service_as_an_ordinary_user(service: Service) -> None:
    text = dockerfile(service)
    scripts = tomllib.loads((PROJECT / "services" / service / "pyproject.toml").read_text())["project"][
        "scripts"
    ]
    entry = re.findall(r'ENTRYPOINT \["(.+)"\]', text)
    assert entry == list(scripts)
    assert text.index("\nUSER 10001\n") < text.index("\nENTRYPOINT ")


@services
def test_an_image_probes_itself_with_a_module_that_it_contains(service: Service) -> None:
    assert f'CMD ["python", "-m", "{PROBE}", "127.0.0.1:{DEFAULT_PORTS[service]}"]' in dockerfile(service)
    files = {file for each in installed_in(f"twinlog-{service}") for file in each.files}
    assert f"{PROBE.replace('.', '/')}.py" in files


def test_only_the_source_has_java_and_spark() -> None:
    with_java = {service for service in Service if "jre" in dockerfile(service)}
    with_spark = {service for service in Service if "source.txt" in dockerfile(service)}
    assert with_java == with_spark == {Service.SOURCE}
    assert "pyspark" in pinned("source.txt")
    assert "pyspark" not in pinned("library.txt")


@images
def test_an_image_holds_a_distribution_and_what_it_needs_and_nothing_else_of_ours(image: str) -> None:
    held = installed_in(image)
    wanted = next(each for each in held if each.name == image)
    assert {each.name for each in held} == {wanted.name, *(each.name for each in needed_by(wanted))}


@services
def test_the_image_of_a_service_has_no_command_line_and_no_test_tools(service: Service) -> None:
    files = [file for each in installed_in(f"twinlog-{service}") for file in each.files]
    for part in ("cli", "demo", "local", "preflight", "supervisor", "testing"):
        assert not [file for file in files if file.startswith(f"twinlog/{part}/")], part


EXTRAS = {"twinlog-service": ("oidc", "otlp"), "twinlog": ("ui",)}
"""What the images hold beyond what each installation needs."""


def extras_of(distribution: str) -> list[Requirement]:
    if distribution not in EXTRAS:
        return []
    folder = PROJECT if distribution == "twinlog" else PROJECT / "distributions" / "service"
    optional = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return [Requirement(text) for extra in EXTRAS[distribution] for text in optional[extra]]


@images
def test_the_pinned_versions_are_what_the_packages_ask_for(image: str) -> None:
    versions = pinned(PINS.get(image, "library.txt"))
    held = installed_in(image)
    for requirement in [each for one in held for each in (*one.requirements, *extras_of(one.name))]:
        if requirement.name.startswith("twinlog"):
            continue
        version = versions.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not in deploy/requirements: renew it"
        assert requirement.specifier.contains(version, prereleases=True), (requirement, version)


@pytest.mark.parametrize("image", ["twinlog-checkpoint", "twinlog-source", "twinlog"])
def test_nothing_is_pinned_that_nobody_asks_for(image: str) -> None:
    versions = pinned(PINS.get(image, "library.txt"))
    asked = {
        canonicalize_name(requirement.name)
        for held in installed_in(image)
        for requirement in (*held.requirements, *extras_of(held.name))
    }
    for package in versions:
        asked |= {canonicalize_name(Requirement(text).name) for text in requires(package) or ()}
    assert set(versions) - asked == set()
