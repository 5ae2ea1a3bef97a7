"""Converts `tls` and `authentication` of Strimzi's clusters into settings of Kafka's clients. Secrets stay
where they are: the file refers to them by a config provider."""

from twinlog.imports.documents import Tree
from twinlog.imports.draft import Setting
from twinlog.imports.references import References

_MODULES = "org.apache.kafka.common.security."
_STRIMZI_LOGIN = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"
_SCRAM = {"scram-sha-256": "SCRAM-SHA-256", "scram-sha-512": "SCRAM-SHA-512"}
_OAUTH_TEXTS = {
    "clientId": "oauth.client.id",
    "username": "oauth.password.grant.username",
    "scope": "oauth.scope",
    "audience": "oauth.audience",
    "tokenEndpointUri": "oauth.token.endpoint.uri",
    "accessTokenLocation": "oauth.access.token.location",
    "clientAssertionLocation": "oauth.client.assertion.location",
}
_OAUTH_SECONDS = {
    "connectTimeoutSeconds": "sasl.login.connect.timeout.ms",
    "readTimeoutSeconds": "sasl.login.read.timeout.ms",
}
_OAUTH_SECRETS = {
    "clientSecret": "oauth.client.secret",
    "accessToken": "oauth.access.token",
    "refreshToken": "oauth.refresh.token",
    "passwordSecret": "oauth.password.grant.password",
}


_OTHERS_OF_OAUTH = (
    "disableTlsHostnameVerification",
    "tlsTrustedCertificates",
    "saslExtensions",
    "clientAssertion",
)
_LOGIN_TEXTS = (
    "type", "sasl", "grantType", "disableTlsHostnameVerification", *_OAUTH_TEXTS, *_OAUTH_SECONDS,
)  # fmt: skip
_LOGIN_TABLES = ("certificateAndKey", "config", "clientAssertion", "saslExtensions", *_OAUTH_SECRETS)
_SECRET_TEXTS = ("secretName", "certificate", "key", "password", "pattern")


def security_settings(cluster: Tree, alias: str, references: References) -> dict[str, Setting]:
    """The client keys of a cluster, without prefix."""
    return _Security(cluster, alias, references).settings()


class _Security:
    def __init__(self, cluster: Tree, alias: str, references: References) -> None:
        self._tls, self._login = cluster.get("tls"), cluster.get("authentication")
        # `tls: {}` switches it on; null does not, as a rendered chart may have it.
        self._has_tls = "tls" in cluster.fields and not self._tls.is_null
        self._alias, self._references = alias, references
        self._report = references.draft.report
        self._cluster = cluster
        self._found: dict[str, Setting] = {}
        self._tls.require(lists=("trustedCertificates",))
        self._login.require(texts=_LOGIN_TEXTS, tables=_LOGIN_TABLES, lists=("tlsTrustedCertificates",))
        for secret in (
            *(self._login.get(name) for name in _LOGIN_TABLES if name not in ("config", "saslExtensions")),
            *self._tls.get("trustedCertificates").items,
            *self._login.get("tlsTrustedCertificates").items,
        ):
            secret.require(texts=_SECRET_TEXTS)

    def settings(self) -> dict[str, Setting]:
        protocol = "SSL" if self._has_tls else "PLAINTEXT"
        self._trust()
        if self._login.is_there and self._log_in():
            protocol = "SASL_SSL" if self._has_tls else "SASL_PLAINTEXT"
        where = self._tls if self._has_tls else self._cluster
        self._found["security.protocol"] = where.setting.at(protocol)
        return self._found

    def _trust(self) -> None:
        certificates = self._tls.get("trustedCertificates").items
        texts: list[str] = []
        for certificate in certificates:
            name, file = certificate.text("secretName"), certificate.text("certificate")
            if not file:
                file = "ca.crt"
                self._report.to_do(
                    certificate.setting,
                    f"a pattern names no file, {file} is taken; add the others of the Secret {name}",
                    becomes=f"{self._alias}.ssl.truststore.certificates",
                )
            texts.append(self._secret(certificate, name, file, "ssl.truststore.certificates"))
        if texts:
            place = self._tls.get("trustedCertificates").setting
            self._found["ssl.truststore.type"] = place.at("PEM")
            self._found["ssl.truststore.certificates"] = place.at("\n".join(texts))

    def _log_in(self) -> bool:
        """Whether it uses SASL; certificates do not."""
        kind = self._login.text("type")
        if kind == "tls":
            self._certificate()
            return False
        if kind in ("plain", *_SCRAM):
            self._password(kind)
        elif kind == "oauth":
            self._oauth()
        elif kind == "custom":
            return self._custom()
        else:
            self._report.impossible(
                self._login.setting,
                f"authentication of type {kind!r} is not known: write {self._alias}.sasl.*",
            )
        return True

    def _certificate(self) -> None:
        pair = self._login.get("certificateAndKey")
        name = pair.text("secretName")
        place = pair.setting
        for field, key in (("certificate", "ssl.keystore.certificate.chain"), ("key", "ssl.keystore.key")):
            self._found[key] = place.at(self._secret(pair, name, pair.text(field), key))
        self._found["ssl.keystore.type"] = place.at("PEM")

    def _password(self, kind: str) -> None:
        secret = self._login.get("passwordSecret")
        reference = self._secret(
            secret, secret.text("secretName"), secret.text("password"), "sasl.jaas.config"
        )
        module = "plain.Plain" if kind == "plain" else "scram.Scram"
        self._jaas(
            f"{_MODULES}{module}LoginModule",
            {"username": self._login.text("username"), "password": reference},
            _SCRAM.get(kind, "PLAIN"),
        )

    def _oauth(self) -> None:
        options = {
            option: self._login.text(field)
            for field, option in _OAUTH_TEXTS.items()
            if self._login.get(field).is_there
        }
        for field, option in _OAUTH_SECRETS.items():
            secret = self._login.get(field)
            if secret.is_there:
                file = secret.text("key") or secret.text("password")
                options[option] = self._secret(secret, secret.text("secretName"), file, "sasl.jaas.config")
        for field in ("passwordSecret", "refreshToken"):
            if self._login.get(field).is_there:
                self._report.impossible(
                    self._login.get(field).setting,
                    "this grant is not known: use client credentials or an access token (docs/logins.md)",
                )
        options |= self._token_server()
        for field, key in _OAUTH_SECONDS.items():
            seconds = self._login.get(field)
            if seconds.is_there:
                self._found[key] = seconds.setting.at(f"{seconds.setting.value}000")
        self._leave_out()
        self._jaas(f"{_MODULES}oauthbearer.OAuthBearerLoginModule", options, "OAUTHBEARER")
        self._found["sasl.login.callback.handler.class"] = self._login.setting.at(_STRIMZI_LOGIN)

    def _token_server(self) -> dict[str, str]:
        """Options about TLS to the token server, its assertion, and what is sent to brokers besides the
        token."""
        login, place = self._login, f"{self._alias}.sasl.jaas.config"
        options = {
            f"extension_{name}": it.value for name, it in login.get("saslExtensions").settings().items()
        }
        if login.text("disableTlsHostnameVerification") == "true":
            options["ssl.endpoint.identification.algorithm"] = ""
        assertion = login.get("clientAssertion")
        if assertion.is_there:
            name = assertion.text("secretName")
            self._references.to_mount(assertion.setting, name, place)
            options["oauth.client.assertion.location"] = self._references.mounted(name, assertion.text("key"))
        trusted = login.get("tlsTrustedCertificates")
        files = [(each.text("secretName"), each.text("certificate")) for each in trusted.items]
        if len(files) == 1 and all(files[0]):
            self._references.to_mount(trusted.setting, files[0][0], place)
            options |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self._references.mounted(*files[0]),
            }
        elif trusted.is_there:
            self._report.to_do(
                trusted.setting,
                "name the file of the token server's authority as ssl.truststore.location in the JAAS entry",
                becomes=place,
            )
        return options

    def _leave_out(self) -> None:
        """Report the parts of `oauth` that have no equivalent."""
        read = {*_OAUTH_TEXTS, *_OAUTH_SECRETS, *_OAUTH_SECONDS, *_OTHERS_OF_OAUTH, "type"}
        for name in self._login.fields.keys() - read:
            tree = self._login.get(name)
            if name == "grantType" and tree.setting.value not in ("", "client_credentials"):
                self._report.impossible(
                    tree.setting, "this grant is not known: use client credentials (docs/logins.md)"
                )
            else:
                self._report.ignored(tree.setting, "about how Strimzi's login handles tokens")

    def _custom(self) -> bool:
        for key, setting in self._login.get("config").settings().items():
            # The operator leaves out what it sets itself.
            self._found[key] = setting
        return self._login.text("sasl") == "true"

    def _jaas(self, module: str, options: dict[str, str], mechanism: str) -> None:
        quoted = {key: value.replace("\\", "\\\\").replace('"', '\\"') for key, value in options.items()}
        words = "".join(f' {key}="{value}"' for key, value in quoted.items())
        self._found["sasl.mechanism"] = self._login.setting.at(mechanism)
        self._found["sasl.jaas.config"] = self._login.setting.at(f"{module} required{words};")

    def _secret(self, tree: Tree, name: str, key: str, becomes: str) -> str:
        self._references.to_mount(tree.setting, name, f"{self._alias}.{becomes}")
        return self._references.secret(name, key)
