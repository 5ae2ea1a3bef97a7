"""What the image and compose files promise, held against the code they start."""

import re
import subprocess
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from deploy.supply.locks import read
from deploy.supply.projects import SERVICES
from deploy.supply.sbom import IMAGES
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from twinlog import __version__
from twinlog.config import Service, load
from twinlog.config.keys.table import default_port
from twinlog.config.security import TlsFiles
from twinlog.service.access.exposure import refuse_open_port
from twinlog.service.access.pem_files import Pem, PemFiles
from unit.deploy.compose_files import EACH, FILES, IDS, TLS, merged, recipe
from unit.deploy.wheels import PROJECT, Distribution, distribution, needed_by

COMPOSE = (PROJECT / "deploy/compose/compose.yaml").read_text()
MM2_FILE = PROJECT / "deploy/compose/mm2.properties"
PROBE = "twinlog.service.probe"

services = pytest.mark.parametrize("service", list(Service))
images = pytest.mark.parametrize("image", list(IMAGES))


def dockerfile(service: Service) -> str:
    return recipe(f"twinlog-{service}")


def installed_in(image: str) -> list[Distribution]:
    """Our distributions in an image, those that its `pip check` looks at."""
    text = recipe(image)
    (of_each,), (own,) = (
        re.findall(r"--wheel-dir /ours (.+) \$HOLDS", text),
        re.findall(r'HOLDS="(.+?)"', text),
    )
    return [distribution(PROJECT / directory) for directory in f"{of_each} {own}".split()]


def compose_sections() -> dict[str, str]:
    """The text below `services:` by service name."""
    body = COMPOSE.partition("\nservices:\n")[2].partition("\nvolumes:\n")[0]
    parts = re.split(r"^  ([a-z-]+):\n", body, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def pinned(name: str) -> dict[str, str]:
    """Versions by canonical name of a lock, as far as they apply here."""
    return {
        each.name: each.version
        for each in read(PROJECT / "deploy/requirements" / name)
        if not each.marker or Marker(each.marker).evaluate()
    }


def test_compose_starts_both_clusters_and_every_service() -> None:
    assert set(compose_sections()) == {"kafka-a", "kafka-b", "twinlog", "ui", *Service}
    at_once = {name for name, section in compose_sections().items() if "profiles:" not in section}
    assert at_once == {"kafka-a", "kafka-b", "ui", *Service}


def test_the_live_page_runs_from_the_image_of_the_command_line() -> None:
    assert "args: {IMAGE: twinlog}" in compose_sections()["ui"]


def test_every_published_port_is_on_loopback() -> None:
    published = [port for line in re.findall(r"ports: \[(.+)\]", COMPOSE) for port in line.split(", ")]
    assert len(published) == len(set(compose_sections()) - {"twinlog"})
    assert all(re.fullmatch(r'"127\.0\.0\.1:(?:(\d+):\1|:\d+)"', port) for port in published)


def test_the_clusters_have_different_ids() -> None:
    ids = re.findall(r"CLUSTER_ID: (\S+)", COMPOSE)
    assert len(ids) == len(set(ids)) == 2


each_container = pytest.mark.parametrize(("file", "name"), EACH, ids=IDS)


@each_container
def test_what_a_container_refers_to_is_there(file: str, name: str) -> None:
    container = merged(file, name)
    for volume in container.get("volumes", ()):
        source, target, *_ = volume.split(":")
        if source.startswith("."):
            assert (MM2_FILE.parent / source).exists(), volume
        else:
            assert source in {**FILES["compose.yaml"]["volumes"], **FILES[file].get("volumes", {})}, volume
        assert target.startswith("/")
    if "build" in container:
        context = MM2_FILE.parent / container["build"]["context"]
        assert context.resolve() == PROJECT
        assert (context / container["build"]["dockerfile"]).is_file()
        assert container["image"].partition(":")[0] == container["build"]["args"]["IMAGE"]
    known = dict.fromkeys(FILES["compose.yaml"]["services"], "compose.yaml")
    known |= dict.fromkeys(FILES[file]["services"], file)
    needed = container.get("depends_on", {})
    for other in needed:
        assert other in known
        if isinstance(needed, dict) and needed[other]["condition"] == "service_healthy":
            assert "healthcheck" in merged(known[other], other)


@each_container
def test_a_container_that_stays_says_when_it_is_ready_and_is_reached_from_this_machine_alone(
    file: str, name: str
) -> None:
    container = merged(file, name)
    if "profiles" not in container and container["restart"] != "no":
        assert set(container["healthcheck"]) >= {"test", "interval", "timeout", "retries"}
        assert container["restart"] == "unless-stopped"
    for port in container.get("ports", ()):
        assert re.fullmatch(r"127\.0\.0\.1:(?:(\d+):\1|:\d+)", port)


@each_container
def test_a_health_check_is_the_same_where_its_words_are_split_at_blanks(file: str, name: str) -> None:
    """As podman 4.3 splits those of a CMD that comes through Docker's API."""
    kind, *words = merged(file, name).get("healthcheck", {}).get("test", ["CMD"])
    assert kind == "CMD-SHELL" or [each for word in words for each in word.split()] == words


def test_no_two_containers_publish_one_port() -> None:
    ports = [port for file, name in EACH for port in FILES[file]["services"][name].get("ports", ())]
    assert len(ports) == len(set(ports))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Pem:
    """What the container `certificates` makes, by the same script."""
    made = tmp_path_factory.mktemp("tls")
    script = str(MM2_FILE.parent / "make-certificates.sh")
    for _ in range(2):  # the second start of the stack keeps it
        subprocess.run(["/bin/sh", script, str(made)], check=True, capture_output=True)
    assert {path.name for path in made.iterdir()} == {"ca.crt", "tls.crt", "tls.key"}, "no key of the CA"
    assert (made / "tls.key").stat().st_mode & 0o077 == 0
    names = {name: str(made / f"tls.{name}") for name in ("crt", "key")}
    return PemFiles(TlsFiles(certificate=names["crt"], key=names["key"], ca=str(made / "ca.crt"))).current()


def test_the_file_with_tls_is_the_other_one_with_certificates_instead_of_open_ports() -> None:
    tls_file = MM2_FILE.with_name("mm2.tls.properties")
    configuration = load(tls_file, environ={}, strict=True)
    for service in Service:
        assert configuration.security.port(service).client_certificates
        refuse_open_port(configuration, service)

    def lines(file: Path) -> list[str]:
        lines = file.read_text().splitlines()
        return [line for line in lines if not re.match(r"#|config\.providers|twinlog\.(tls|insecure)", line)]

    assert lines(tls_file) == lines(MM2_FILE)


@services
def test_any_number_of_containers_of_a_service_is_called_by_their_own_names_under_one_certificate(
    service: Service, certificate: Pem
) -> None:
    base, secured = merged("compose.yaml", str(service)), merged(TLS, str(service))
    assert "container_name" not in secured
    assert secured["command"] == base["command"], "each tells the name of its own container"
    assert secured["image"] == base["image"]
    assert secured.get("networks", {}) == {}, "a name that leads to all of them is no address of an owner"
    assert secured.get("scale", 1) == (1 if service == "heartbeat" else 2)
    assert secured["healthcheck"]["test"][-1] == f"{service}=127.0.0.1:{default_port(service)}"
    assert "./mm2.tls.properties:/etc/twinlog/mm2.properties:ro" in secured["volumes"]
    configuration = load(
        MM2_FILE.with_name("mm2.tls.properties"),
        environ={"HOSTNAME": "1f9a"},
        overrides=dict([secured["command"][-1].replace("$$", "$").split("=", 1)]),
    )
    assert str(configuration.endpoints[service].endpoint) == f"1f9a:{default_port(service)}"
    for called in Service:
        expected = configuration.security.to_call(called, own=service).server_name
        assert f"dns:{expected}" in certificate.names


@services
def test_compose_publishes_and_probes_the_port_of_the_service(service: Service) -> None:
    section, port = compose_sections()[service], default_port(service)
    assert f'"127.0.0.1::{port}"' in section
    assert f'"{PROBE}", "127.0.0.1:{port}"' in section
    assert f"args: {{IMAGE: twinlog-{service}}}" in section


def test_the_shared_file_is_free_of_problems_and_says_where_each_service_is() -> None:
    configuration = load(MM2_FILE, environ={}, strict=True)
    assert not configuration.notices
    assert [str(entry.flow) for entry in configuration.enabled_flows] == ["A->B"]
    for service, endpoints in configuration.endpoints.items():
        assert str(endpoints.listen) == f"0.0.0.0:{default_port(service)}"
        assert str(endpoints.endpoint) == f"{service}:{default_port(service)}"
        assert str(endpoints.metrics_listen) == f"0.0.0.0:{default_port(service, 'metrics.listen')}"


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
    assert text.endswith("\nUSER 10001\n")


@services
def test_an_image_probes_itself_with_a_module_that_it_contains(service: Service) -> None:
    assert f'CMD ["python", "-m", "{PROBE}", "127.0.0.1:{default_port(service)}"]' in dockerfile(service)
    files = {file for each in installed_in(f"twinlog-{service}") for file in each.files}
    assert f"{PROBE.replace('.', '/')}.py" in files


def test_the_image_that_holds_all_runs_all_services_by_the_file_of_the_others_as_an_ordinary_user() -> None:
    text = recipe("twinlog-all")
    assert text.endswith("\nUSER 10001\n")
    assert '\nENTRYPOINT ["twinlog"]\n' in text
    (file,) = re.findall(r"TWINLOG_CONFIG=(\S+)", recipe("twinlog"))
    assert f'CMD ["run", "{file}"]' in text
    assert "jre" in text


def test_only_the_source_has_java_and_spark() -> None:
    with_java = {service for service in Service if "jre" in dockerfile(service)}
    with_spark = {service for service in Service if "LOCK=source.txt" in dockerfile(service)}
    assert with_java == with_spark == {Service.SOURCE}
    assert "pyspark" in pinned("source.txt")
    assert "pyspark" not in pinned("library.txt")


@images
def test_an_image_holds_a_distribution_and_what_it_needs_and_nothing_else_of_ours(image: str) -> None:
    held = installed_in(image)
    name, left_out = ("twinlog", set()) if image == "twinlog-all" else (image, SERVICES - {image})
    wanted = next(each for each in held if each.name == name)
    assert {each.name for each in held} == {name, *(each.name for each in needed_by(wanted))} - left_out


@services
def test_the_image_of_a_service_has_no_command_line_and_no_test_tools(service: Service) -> None:
    files = [file for each in installed_in(f"twinlog-{service}") for file in each.files]
    for part in ("cli", "demo", "local", "preflight", "supervisor", "testing"):
        assert not [file for file in files if file.startswith(f"twinlog/{part}/")], part


EXTRAS = {"twinlog-service": ("oidc", "otlp"), "twinlog-source": ("records",), "twinlog": ("ui",)}
"""What the images hold beyond what each installation needs."""


def extras_of(distribution: str) -> list[Requirement]:
    if distribution not in EXTRAS:
        return []
    folders = {
        "twinlog": ".",
        "twinlog-service": "distributions/service",
        "twinlog-source": "services/source",
    }
    text = (PROJECT / folders[distribution] / "pyproject.toml").read_text()
    optional = tomllib.loads(text)["project"]["optional-dependencies"]
    return [Requirement(text) for extra in EXTRAS[distribution] for text in optional[extra]]


@images
def test_the_pinned_versions_are_what_the_packages_ask_for(image: str) -> None:
    versions = pinned(IMAGES[image])
    held = installed_in(image)
    for requirement in [each for one in held for each in (*one.requirements, *extras_of(one.name))]:
        if requirement.name.startswith("twinlog"):
            continue
        version = versions.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not in deploy/requirements: renew it"
        assert requirement.specifier.contains(version, prereleases=True), (requirement, version)


@pytest.mark.parametrize("image", ["twinlog-checkpoint", "twinlog-source", "twinlog", "twinlog-all"])
def test_nothing_is_pinned_that_nobody_asks_for(image: str) -> None:
    versions = pinned(IMAGES[image])
    asked = {
        canonicalize_name(requirement.name)
        for held in installed_in(image)
        for requirement in (*held.requirements, *extras_of(held.name))
    }
    for package in versions:
        asked |= {canonicalize_name(Requirement(text).name) for text in requires(package) or ()}
    assert set(versions) - asked == set()
