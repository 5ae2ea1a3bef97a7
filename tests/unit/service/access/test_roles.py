"""Every method says in its proto who may call it, and nobody is more than the file says."""

from importlib import import_module
from pkgutil import walk_packages

import pytest
from google.protobuf.descriptor import MethodDescriptor

import twinlog.api
from twinlog.api.common.v1 import access_pb2
from twinlog.config.security import AuthSettings
from twinlog.service.access.roles import Role, is_change, needed_role, role_of
from unit.cases import about


def every_method() -> list[MethodDescriptor]:
    found: list[MethodDescriptor] = []
    for module in walk_packages(twinlog.api.__path__, "twinlog.api."):
        if module.name.endswith("_pb2"):
            descriptor = import_module(module.name).DESCRIPTOR
            found += [each for service in descriptor.services_by_name.values() for each in service.methods]
    return found


METHODS = every_method()
OF_TASKS = ("Run", "Work")
LOOKS = ("List", "Watch", "Get", "Plan", "Explain", "Translate", "Follow")


def path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def test_all_services_are_seen() -> None:
    names = {method.containing_service.name for method in METHODS}
    assert names == {
        "SourceService",
        "WorkerService",
        "CheckpointService",
        "HeartbeatService",
        "ConfigSyncService",
        "TableService",
        "OwnersService",
    }


def test_every_method_names_the_role_that_it_needs() -> None:
    for method in METHODS:
        with about(method):
            needed = needed_role(path(method))
            if method.name in OF_TASKS:
                assert needed == access_pb2.ROLE_WORKER
            elif method.name.startswith(LOOKS):
                assert needed == access_pb2.ROLE_VIEWER
            else:
                assert needed in (access_pb2.ROLE_OPERATOR, access_pb2.ROLE_ADMIN)


def test_what_changes_something_is_in_the_audit_log() -> None:
    for method in METHODS:
        with about(method):
            assert is_change(path(method)) is (
                method.name not in OF_TASKS and not method.name.startswith(LOOKS)
            )


def test_a_method_that_no_proto_knows_has_no_role() -> None:
    assert needed_role("/twinlog.api.source.v1.SourceService/Nothing") == access_pb2.ROLE_UNSPECIFIED


def test_reflection_is_for_those_who_may_look() -> None:
    assert needed_role("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo") == Role.VIEWER


@pytest.mark.parametrize(
    ("principals", "role"),
    [
        (["cn:reader"], Role.VIEWER),
        (["cn:nobody"], Role.NONE),
        (["cn:nobody", "group:mirror-ops"], Role.OPERATOR),
        (["uri:spiffe://acme/root/1", "cn:reader"], Role.ADMIN),
        (["sub:cn:reader"], Role.NONE),
        ([], Role.NONE),
    ],
)
def test_the_highest_role_of_any_principal_counts(principals: list[str], role: Role) -> None:
    auth = AuthSettings(
        viewers=("cn:reader",), operators=("group:mirror-ops",), admins=("uri:spiffe://acme/root/*",)
    )
    assert role_of(principals, auth) is role


def test_a_star_means_everybody_who_is_identified() -> None:
    auth = AuthSettings(viewers=("*",))
    assert role_of(["cn:anybody"], auth) is Role.VIEWER
    assert role_of([], auth) is Role.NONE
