"""The manifests of deploy/kubernetes: made from the chart as it is, with files that the services take, and
with nothing that a cluster would have to forbid."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.kubernetes.render import MANIFESTS, VALUES, head

from twinlog.config import Configuration, Service, load
from twinlog.config.keys_twinlog import DEFAULT_METRICS_PORTS, DEFAULT_PORTS
from twinlog.service.access.exposure import refuse_open_port

manifests = pytest.mark.parametrize("name", sorted(path.name for path in VALUES.glob("*.yaml")))


def documents(name: str) -> list[dict[str, Any]]:
    text = (MANIFESTS / name).read_text()
    return [document for document in yaml.safe_load_all(text) if document]


def of_kind(name: str, kind: str) -> list[dict[str, Any]]:
    return [document for document in documents(name) if document["kind"] == kind]


class _File:
    def __init__(self, text: str) -> None:
        self._text = text

    def read_bytes(self, path: str) -> bytes:
        if path != "mm2.properties":
            raise FileNotFoundError(2, "No such file or directory")
        return self._text.encode("latin-1")

    def is_file(self, path: str) -> bool:
        return False


def configuration(name: str) -> Configuration:
    [config] = of_kind(name, "ConfigMap")
    reader = _File(config["data"]["mm2.properties"])
    return load(Path("mm2.properties"), environ={}, files=reader, strict=True)


@manifests
def test_they_are_made_from_the_chart_as_it_is(name: str) -> None:
    text = (MANIFESTS / name).read_text()
    assert text.startswith(head(VALUES / name)), "run python -m deploy.kubernetes.render"


@manifests
def test_their_properties_file_is_one_that_every_service_takes(name: str) -> None:
    found = configuration(name)

    for service in Service:
        refuse_open_port(found, service)
        assert found.endpoints[service].listen.port == DEFAULT_PORTS[service]
        assert found.endpoints[service].endpoint.host == f"twinlog-{service}"
        metrics = found.endpoints[service].metrics_listen
        assert metrics is not None
        assert metrics.port == DEFAULT_METRICS_PORTS[service]


def test_values_of_flows_are_the_keys_that_they_name() -> None:
    [plain] = configuration("plain.yaml").flows[:1]
    assert plain.configsync.topics.include == ("orders", r"payments\..*")
    assert plain.checkpoint.sync_group_offsets_enabled
    assert plain.configsync.replication_factor == 3

    [flow] = configuration("secured.yaml").flows
    assert str(flow.flow) == "east->west"
    assert flow.policy_config["replication.policy.class"].endswith("IdentityReplicationPolicy")
    assert flow.source.offset_storage.topic == "mirrormaker2-cluster-offsets"
    assert flow.source.connector_name == "east->west.MirrorSourceConnector"
    assert flow.source.offset_syncs.max_lag_records == 1_000_000
    assert flow.source.max_slots == 8
    assert flow.heartbeat.enabled


@manifests
def test_every_service_runs_with_the_rights_of_nobody(name: str) -> None:
    sets = of_kind(name, "StatefulSet")
    assert {each["metadata"]["name"] for each in sets} == {f"twinlog-{service}" for service in Service}
    for each in sets:
        pod = each["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        [container] = pod["containers"]
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
        assert pod["terminationGracePeriodSeconds"] > 21, "drain and grace of a service"


@manifests
def test_every_service_is_probed_by_its_grpc_health(name: str) -> None:
    secure = bool(configuration(name).security.port(Service.SOURCE).tls)
    for each in of_kind(name, "StatefulSet"):
        [container] = each["spec"]["template"]["spec"]["containers"]
        port = DEFAULT_PORTS[Service(container["name"])]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if secure:
                command = container[probe]["exec"]["command"]
                assert command[:3] == ["python", "-m", "twinlog.service.probe"]
                assert command[-1] == f"{container['name']}=127.0.0.1:{port}"
            else:
                assert container[probe]["grpc"]["port"] == port


@manifests
def test_two_replicas_are_not_evicted_together_and_the_owner_has_a_name(name: str) -> None:
    guarded = {each["metadata"]["name"] for each in of_kind(name, "PodDisruptionBudget")}
    headless = {
        each["metadata"]["name"]
        for each in of_kind(name, "Service")
        if each["spec"].get("clusterIP") == "None"
    }
    for each in of_kind(name, "StatefulSet"):
        own = each["metadata"]["name"]
        assert (each["spec"]["replicas"] > 1) == (own in guarded)
        assert each["spec"]["serviceName"] in headless
        [container] = each["spec"]["template"]["spec"]["containers"]
        assert any(f"$(POD_NAME).{own}-pods:" in word for word in container["args"])


@manifests
def test_only_those_who_are_named_reach_a_port(name: str) -> None:
    policies = of_kind(name, "NetworkPolicy")
    assert len(policies) == len(Service)
    for policy in policies:
        for rule in policy["spec"]["ingress"]:
            assert rule["from"], "an empty list would let everybody in"


@manifests
def test_no_secret_stands_in_a_manifest(name: str) -> None:
    assert not of_kind(name, "Secret")
    text = (MANIFESTS / name).read_text()
    assert all(match.startswith("${secrets:") for match in re.findall(r'password="([^"]*)"', text))
