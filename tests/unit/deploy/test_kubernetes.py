"""The manifests of deploy/kubernetes: made from the chart as it is, with files that the services take, and
with nothing that a cluster would have to forbid."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from deploy.kubernetes.render import CHART, KUBERNETES, MANIFESTS, OTHERS_KINDS, VALUES, head, write_schemas
from jsonschema import Draft7Validator

from twinlog.config import Configuration, Service, load
from twinlog.config.keys.table import default_port
from twinlog.service.access.exposure import refuse_open_port
from twinlog_source.pipeline import executor
from unit.cases import about

DEPLOY = CHART.parents[1]
manifests = pytest.mark.parametrize("name", sorted(path.name for path in VALUES.glob("*.yaml")))


@cache
def documents(name: str) -> tuple[dict[str, Any], ...]:
    """Read once for all tests: who changes one copies it."""
    text = (MANIFESTS / name).read_text()
    return tuple(document for document in yaml.safe_load_all(text) if document)


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
    config = next(each for each in of_kind(name, "ConfigMap") if "mm2.properties" in each["data"])
    reader = _File(config["data"]["mm2.properties"])
    return load(Path("mm2.properties"), environ={}, files=reader, strict=True)


@manifests
def test_they_are_made_from_the_chart_as_it_is(name: str) -> None:
    text = (MANIFESTS / name).read_text()
    assert text.startswith(head(VALUES / name)), "run python -m deploy.kubernetes.render"


@manifests
def test_kubernetes_takes_every_field_of_them(name: str) -> None:
    own = [document for document in documents(name) if document["kind"] not in OTHERS_KINDS]
    assert own
    for document in own:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_kubernetes_takes_the_pod_that_executors_are_made_of() -> None:
    [config] = of_kind("everything.yaml", "ConfigMap")[:1]
    pod = yaml.safe_load(config["data"]["executor.yaml"])
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def test_a_field_that_kubernetes_does_not_have_is_found() -> None:
    [first, *_] = of_kind("plain.yaml", "StatefulSet")
    first = {**first, "spec": {**first["spec"], "replica": 1}}
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(first, KUBERNETES, strict=True)


@manifests
def test_the_chart_takes_the_values_of_an_example_and_no_misspelt_ones(name: str) -> None:
    validator = Draft7Validator(json.loads((CHART / "values.schema.json").read_text()))
    values = yaml.safe_load((VALUES / name).read_text())
    validator.validate(values)
    [flow, *_] = values["flows"]
    values["flows"][flow]["topic"] = "orders"
    [error] = validator.iter_errors(values)
    assert "topic" in error.message


@manifests
def test_their_properties_file_is_one_that_every_service_takes(name: str) -> None:
    found = configuration(name)

    for service in Service:
        refuse_open_port(found, service)
        assert found.endpoints[service].listen.port == default_port(service)
        assert found.endpoints[service].endpoint.host == f"twinlog-{service}"
        metrics = found.endpoints[service].metrics_listen
        assert metrics is not None
        assert metrics.port == default_port(service, "metrics.listen")


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
        makes_pods = each["metadata"]["name"] == "twinlog-source" and runs_executors(name)
        assert pod["automountServiceAccountToken"] is makes_pods
        assert pod["securityContext"]["runAsNonRoot"] is True
        [container] = pod["containers"]
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
        assert pod["terminationGracePeriodSeconds"] > 21, "drain and grace of a service"


def runs_executors(name: str) -> bool:
    return configuration(name).spark.master.startswith("k8s://")


@manifests
def test_rights_in_kubernetes_are_those_of_a_driver_of_spark_and_of_nobody_else(name: str) -> None:
    roles = of_kind(name, "Role")
    assert not of_kind(name, "ClusterRole")
    assert bool(roles) == runs_executors(name)
    for role in roles:
        [rule] = role["rules"]
        assert set(rule["resources"]) == {"pods", "configmaps", "persistentvolumeclaims"}, "no secrets"
    for binding in of_kind(name, "RoleBinding"):
        assert [subject["name"] for subject in binding["subjects"]] == ["twinlog-spark"]
    using = {
        each["metadata"]["name"]
        for each in of_kind(name, "StatefulSet")
        if each["spec"]["template"]["spec"]["serviceAccountName"] == "twinlog-spark"
    }
    assert using == ({"twinlog-source"} if roles else set())


def test_pods_of_source_lend_their_cores_where_their_calls_are_secure() -> None:
    plain, secured = (configuration(name).spark.worker_listen for name in ("plain.yaml", "secured.yaml"))
    assert plain is not None
    assert plain.is_loopback
    assert str(secured) == "0.0.0.0:17405"
    for name, allowed in (("plain.yaml", []), ("secured.yaml", ["source"])):
        [policy] = [
            each for each in of_kind(name, "NetworkPolicy") if each["metadata"]["name"].endswith("-source")
        ]
        callers = [
            caller["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
            for rule in policy["spec"]["ingress"]
            if {"port": "workers"} in rule["ports"]
            for caller in rule["from"]
        ]
        assert callers == allowed


def test_executors_find_the_driver_and_the_tasks_port_by_the_name_of_its_pod() -> None:
    conf = configuration("everything.yaml").spark
    ports = {"driver": conf.conf["spark.driver.port"], "blocks": conf.conf["spark.driver.blockManager.port"]}
    assert conf.worker_listen is not None
    ports["workers"] = str(conf.worker_listen.port)
    [source] = [
        each for each in of_kind("everything.yaml", "StatefulSet") if "source" in each["metadata"]["name"]
    ]
    [container] = source["spec"]["template"]["spec"]["containers"]
    opened = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
    assert ports.items() <= opened.items()
    set_to = dict(word.split("=", 1) for word in container["args"] if "=" in word)
    own = "$(POD_NAME).twinlog-source-pods"
    assert set_to["twinlog.source.worker.endpoint"] == f"{own}:{ports['workers']}"
    assert set_to["twinlog.spark.conf.spark.driver.host"] == f"{own}.kafka.svc"
    assert conf.conf["spark.kubernetes.executor.useDriverPodIP"] == "false", "the address 0.0.0.0"
    assert set_to["twinlog.spark.conf.spark.kubernetes.executor.podNamePrefix"] == "$(POD_NAME)"
    [policy] = [
        each
        for each in of_kind("everything.yaml", "NetworkPolicy")
        if each["metadata"]["name"] == "twinlog-source"
    ]
    let_in = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    assert let_in >= ports.keys()
    [config] = of_kind("everything.yaml", "ConfigMap")[:1]
    pod = yaml.safe_load(config["data"]["executor.yaml"])
    assert pod["metadata"]["labels"]["app.kubernetes.io/component"] == "executor"


def test_executors_run_the_image_of_source_with_its_rights() -> None:
    [source] = [
        each for each in of_kind("everything.yaml", "StatefulSet") if "source" in each["metadata"]["name"]
    ]
    driver = source["spec"]["template"]["spec"]
    [own] = driver["containers"]
    conf = configuration("everything.yaml").spark.conf
    assert conf["spark.kubernetes.container.image"] == own["image"]
    [config] = of_kind("everything.yaml", "ConfigMap")[:1]
    pod = yaml.safe_load(config["data"]["executor.yaml"])["spec"]
    assert pod["securityContext"] == driver["securityContext"]
    assert pod["automountServiceAccountToken"] is False
    [container] = pod["containers"]
    assert container["securityContext"] == own["securityContext"]
    assert container["command"][1:] == ["-m", executor.__name__]
    volumes = {each["name"]: each for each in pod["volumes"]}
    writable = {
        each["mountPath"] for each in container["volumeMounts"] if "emptyDir" in volumes[each["name"]]
    }
    assert container["workingDir"] in writable, "Spark unpacks libraries there"
    assert {"name": "HOME", "value": "/tmp"} in container["env"]


def test_the_examples_set_every_value_that_a_flow_has_a_name_for() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    named = schema["properties"]["flows"]["additionalProperties"]["properties"].keys()
    flows = [
        flow for path in VALUES.glob("*.yaml") for flow in yaml.safe_load(path.read_text())["flows"].values()
    ]
    used = {name for flow in flows for name in flow}
    # Classes of other packages, which are not here.
    assert named - used == {"topicFilterClass", "groupFilterClass"}


def test_named_values_of_today_reach_the_flow() -> None:
    found = configuration("everything.yaml")
    flow = found.flows[0]
    assert flow.source.exactly_once
    assert flow.source.delay_seconds == 60
    assert not flow.configsync.apply_automatically
    assert flow.configsync.acl_mode == "read-only"
    assert flow.configsync.sync_quotas_enabled
    assert not flow.configsync.follow_deletes
    assert flow.policy_config["twinlog.topic.rename"] == "team-(.*) -> eu-team-$1"
    assert found.security.auth.tokens_file == "/etc/twinlog/auth/twinlog-tokens/tokens"
    assert found.security.client.token_file == "/etc/twinlog/auth/twinlog-own-token/token"
    assert found.security.auth.oidc is not None
    assert found.security.auth.oidc.audience == "twinlog"


def test_grafana_and_prometheus_get_what_compose_gives_them() -> None:
    """Rendering holds what they get against these files; what is linked is in no manifest."""
    assert (CHART / "boards").resolve() == DEPLOY / "grafana/boards"
    assert (CHART / "alerts.yaml").resolve() == DEPLOY / "prometheus/alerts.yaml"
    template = (CHART / "templates/observability.yaml").read_text()
    assert '.Files.Glob "boards/*.json"' in template
    assert '.Files.Get "alerts.yaml"' in template
    assert not of_kind("everything.yaml", "PrometheusRule")
    [monitor] = of_kind("everything.yaml", "ServiceMonitor")
    assert monitor["spec"]["jobLabel"] == "app.kubernetes.io/name", "alerts look for the job twinlog"


@manifests
def test_every_service_is_probed_by_its_grpc_health(name: str) -> None:
    secure = bool(configuration(name).security.port(Service.SOURCE).tls)
    for each in of_kind(name, "StatefulSet"):
        [container] = each["spec"]["template"]["spec"]["containers"]
        port = default_port(Service(container["name"]))
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
    least = {
        each["spec"]["scaleTargetRef"]["name"]: each["spec"]["minReplicas"]
        for each in of_kind(name, "HorizontalPodAutoscaler")
    }
    assert bool(least) == (name == "everything.yaml")
    for each in of_kind(name, "StatefulSet"):
        own = each["metadata"]["name"]
        assert ("replicas" in each["spec"]) != (own in least), "what an autoscaler sets is not set here"
        assert ((least.get(own) or each["spec"]["replicas"]) > 1) == (own in guarded)
        assert each["spec"]["serviceName"] in headless
        [container] = each["spec"]["template"]["spec"]["containers"]
        assert any(f"$(POD_NAME).{own}-pods:" in word for word in container["args"])


@manifests
def test_only_those_who_are_named_reach_a_port(name: str) -> None:
    policies = of_kind(name, "NetworkPolicy")
    assert len(policies) == len(Service) + runs_executors(name)
    for policy in policies:
        for rule in policy["spec"]["ingress"]:
            assert rule["from"], "an empty list would let everybody in"


@manifests
def test_no_secret_stands_in_a_manifest(name: str) -> None:
    assert not of_kind(name, "Secret")
    text = (MANIFESTS / name).read_text()
    assert all(match.startswith("${secrets:") for match in re.findall(r'password="([^"]*)"', text))


_REFERENCE = "${secrets:/etc/twinlog/secrets/mirror:password}"


def _values(place: str, key: str, value: str) -> dict[str, Any]:
    if place == "properties":
        return {"properties": f"clusters = A, B\n A.{key} = {value}\nA->B.enabled = true\n"}
    if place == "clusters":
        return {"clusters": {"A": {"bootstrapServers": "a:9092", "config": {key: value}}}}
    if place == "flows":
        return {"flows": {"A->B": {"config": {f"producer.override.{key}": value}}}}
    return {"config": {f"A.{key}": value}}


def test_a_secret_among_the_values_is_refused_and_a_reference_is_not() -> None:
    for place in ["clusters", "flows", "config", "properties"]:
        for key, before, after in [
            ("sasl.jaas.config", 'x.ScramLoginModule required username="m" password="', '";'),
            ("sasl.jaas.config", 'x.OAuthBearerLoginModule required clientId="m" clientSecret="', '";'),
            ("sasl.jaas.config", "x.PlainLoginModule required username=m password=", ";"),
            ("ssl.keystore.password", "", ""),
            ("ssl.key.password", "", ""),
            ("ssl.keystore.key", "", ""),
            ("sasl.oauthbearer.client.credentials.client.secret", "", ""),
            ("sasl.oauthbearer.assertion.private.key.passphrase", "", ""),
        ]:
            with about(place, key, before, after):
                validator = Draft7Validator(json.loads((CHART / "values.schema.json").read_text()))
                for secret in ("hunter2", "$ecret", "1234"):
                    assert not validator.is_valid(_values(place, key, f"{before}{secret}{after}"))
                validator.validate(_values(place, key, f"{before}{_REFERENCE}{after}"))
                if not before:
                    validator.validate(_values(place, key, ""))


def test_a_login_without_a_secret_may_be_a_value() -> None:
    validator = Draft7Validator(json.loads((CHART / "values.schema.json").read_text()))
    for login in (
        'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/etc/k" principal="m";',
        "software.amazon.msk.auth.iam.IAMLoginModule required;",
    ):
        validator.validate(_values("clusters", "sasl.jaas.config", login))
    text = "A.sasl.oauthbearer.token.endpoint.url = https://id\nA->B.topics = password, secret\\\n, token\n"
    validator.validate({"properties": text})


def test_the_pod_with_the_command_line_reaches_the_services_and_serves_none_of_them() -> None:
    [tools] = of_kind("everything.yaml", "Deployment")
    pod = tools["spec"]["template"]
    labels = pod["metadata"]["labels"].items()
    policies = {
        each["metadata"]["name"]: each["spec"]["ingress"]
        for each in of_kind("everything.yaml", "NetworkPolicy")
    }
    for service in Service:
        let_in = [
            peer["podSelector"]["matchLabels"].items()
            for rule in policies[f"twinlog-{service}"]
            if {"port": "grpc"} in rule["ports"]
            for peer in rule["from"]
        ]
        assert any(wanted <= labels for wanted in let_in)
    for each in of_kind("everything.yaml", "Service"):
        assert not each["spec"]["selector"].items() <= labels
    assert pod["spec"]["volumes"][0]["configMap"]["name"] in {
        each["metadata"]["name"] for each in of_kind("everything.yaml", "ConfigMap")
    }


def test_kubeconform_gets_schemas_that_refer_to_nothing_on_the_web(tmp_path: Path) -> None:
    location = Path(write_schemas(KUBERNETES, tmp_path))
    assert location.parent == tmp_path
    for kind in ("statefulset-apps-v1", "service-v1", "networkpolicy-networking-v1", "_definitions"):
        text = (tmp_path / f"{kind}.json").read_text()
        assert "$id" not in json.loads(text)
        referred = {each.partition("#")[0] for each in re.findall(r'"\$ref": "([^"]+)"', text)}
        assert all(not each or (tmp_path / each).is_file() for each in referred), referred
