"""References in values, and Kafka's three stock providers on files that are not there."""

import pytest

from twinlog.config.values.providers import Resolver, configured_resolver
from twinlog.config.values.reader import ConfigFindings
from twinlog.errors import ConfigError
from twinlog.properties import Property

PACKAGE = "org.apache.kafka.common.config.provider"


class FakeProvider:
    """Knows `password` and nothing else, at any path; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def get(self, path: str, key: str) -> str | None:
        self.asked.append((path, key))
        return "secret2" if key == "password" else None


class FakeFiles:
    def __init__(self, content: dict[str, bytes]) -> None:
        self._content = content

    def read_bytes(self, path: str) -> bytes:
        if path not in self._content:
            raise FileNotFoundError(2, "No such file or directory")
        return self._content[path]

    def is_file(self, path: str) -> bool:
        return path in self._content


def resolver(
    settings: dict[str, str],
    *,
    environ: dict[str, str] | None = None,
    files: dict[str, bytes] | None = None,
    findings: ConfigFindings,
) -> Resolver:
    raw = {key: Property(key=key, value=value, line=7) for key, value in settings.items()}
    return configured_resolver(raw, environ=environ or {}, files=FakeFiles(files or {}), findings=findings)


def resolved(made: Resolver, value: str) -> str:
    return made.resolve(Property(key="k", value=value, line=3)).value


def provider(name: str, class_name: str, **params: str) -> dict[str, str]:
    of_params = {f"config.providers.{name}.param.{k.replace('_', '.')}": v for k, v in params.items()}
    return {
        "config.providers": name,
        f"config.providers.{name}.class": f"{PACKAGE}.{class_name}",
        **of_params,
    }


def test_a_resolved_property_remembers_what_was_written_and_is_not_resolved_again() -> None:
    made = Resolver({"fake": FakeProvider()}, ConfigFindings(file="f"))
    once = made.resolve(Property(key="k", value="${fake:password}", line=3))
    assert once == Property(key="k", value="secret2", line=3, written="${fake:password}")
    assert made.resolve(once) is once


def test_what_finds_nothing_stays_as_written_and_is_said_once() -> None:
    findings = ConfigFindings(file="f")
    made = Resolver({"fake": FakeProvider()}, findings)
    for _ in range(2):
        assert resolved(made, "${fake:nothing} ${other:p4ss}") == "${fake:nothing} ${other:p4ss}"
    texts = [str(notice) for notice in findings.notices]
    assert texts == [
        "line 3: k: ${fake:nothing} is used literally: provider 'fake' has no such value",
        "line 3: k: ${other:…} is used literally: there is no provider 'other' in config.providers",
    ]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (None, "from-env"),
        ("MIRROR_.*", "from-env"),
        ("MIRROR_[PA-S]+WORD", "from-env"),
        ("OTHER_.*", "${env:MIRROR_PASSWORD}"),
        ("MIRROR_", "${env:MIRROR_PASSWORD}"),
        ("ROR_PASSWORD", "${env:MIRROR_PASSWORD}"),
        (".*PASS", "${env:MIRROR_PASSWORD}"),
    ],
)
def test_environment(pattern: str | None, expected: str) -> None:
    params = {} if pattern is None else {"allowlist_pattern": pattern}
    made = resolver(
        provider("env", "EnvVarConfigProvider", **params),
        environ={"MIRROR_PASSWORD": "from-env"},
        findings=ConfigFindings(file="f"),
    )
    assert resolved(made, "${env:MIRROR_PASSWORD}") == expected


SECRETS = {"/etc/mirror/secrets.properties": "user = é\npassword = a\\=b \n".encode()}


@pytest.mark.parametrize(
    ("allowed", "path", "expected"),
    [
        (None, "/etc/mirror/secrets.properties", "a=b "),
        ("/var,/etc/mirror", "/etc/mirror/secrets.properties", "a=b "),
        ("/etc/mirror/secrets.properties", "/etc/mirror/secrets.properties", "a=b "),
        ("/etc/mir", "/etc/mirror/secrets.properties", None),
        ("/etc/mirror/sub", "/etc/mirror/sub/../secrets.properties", None),
        # What is allowed is what is read: the system would go by a link first, and from there upwards.
        ("/etc/mirror", "/etc/mirror/link/../secrets.properties", "a=b "),
    ],
)
def test_file(allowed: str | None, path: str, expected: str | None) -> None:
    params = {} if allowed is None else {"allowed_paths": allowed}
    findings = ConfigFindings(file="f")
    made = resolver(provider("file", "FileConfigProvider", **params), files=SECRETS, findings=findings)
    reference = f"${{file:{path}:password}}"
    assert resolved(made, reference) == (reference if expected is None else expected)
    findings.raise_problems()


def test_files_hold_utf_8() -> None:
    made = resolver(provider("file", "FileConfigProvider"), files=SECRETS, findings=ConfigFindings(file="f"))
    assert resolved(made, "${file:/etc/mirror/secrets.properties:user}") == "é"


@pytest.mark.parametrize(
    ("allowed", "key", "expected"),
    [
        (None, "password", "p4ss\n"),
        ("/run/secrets", "password", "p4ss\n"),
        ("/run/other", "password", None),
        (None, "absent", None),
        (None, "../secrets/password", None),
    ],
)
def test_directory(allowed: str | None, key: str, expected: str | None) -> None:
    params = {} if allowed is None else {"allowed_paths": allowed}
    made = resolver(
        provider("dir", "DirectoryConfigProvider", **params),
        files={"/run/secrets/password": b"p4ss\n"},
        findings=ConfigFindings(file="f"),
    )
    reference = f"${{dir:/run/secrets:{key}}}"
    assert resolved(made, reference) == (reference if expected is None else expected)


def test_a_secret_that_is_not_mounted_names_its_file_as_a_mistake() -> None:
    findings = ConfigFindings(file="f")
    made = resolver(provider("dir", "DirectoryConfigProvider"), findings=findings)
    assert resolved(made, "${dir:/run/secrets:password}") == "${dir:/run/secrets:password}"
    (notice,) = findings.notices
    assert notice.is_mistake
    assert notice.text.endswith("is used literally: there is no /run/secrets/password")


@pytest.mark.parametrize(
    ("settings", "reference", "problem"),
    [
        (
            provider("file", "FileConfigProvider"),
            "${file:/none:password}",
            "f:3: k: ${file:/none:password}: cannot read /none: No such file or directory",
        ),
        (
            provider("env", "EnvVarConfigProvider"),
            "${env:path:NAME}",
            "f:3: k: ${env:path:NAME}: an environment variable has no path: write ${…:NAME}",
        ),
        ({"config.providers": "vault"}, "", "f:7: config.providers.vault.class: missing: expected one of "),
        (
            {"config.providers": "vault", "config.providers.vault.class": "com.example.Vault"},
            "",
            "f:7: config.providers.vault.class: expected one of ",
        ),
        (
            provider("file", "FileConfigProvider", allowed_paths="relative"),
            "",
            "f:7: config.providers.file.class: allowed.paths: relative is not an absolute path",
        ),
        (
            provider("env", "EnvVarConfigProvider", allowlist_pattern="("),
            "",
            "f:7: config.providers.env.class: allowlist.pattern is not a regular expression: ",
        ),
    ],
)
def test_problem(settings: dict[str, str], reference: str, problem: str) -> None:
    findings = ConfigFindings(file="f")
    resolved(resolver(settings, findings=findings), reference)
    with pytest.raises(ConfigError) as caught:
        findings.raise_problems()
    assert str(caught.value).startswith(problem)
