"""What each wheel holds: its own part of the tree, with everything that it imports below it."""

from collections import Counter

import pytest
from packaging.utils import canonicalize_name

from twinlog import __version__
from unit.deploy.wheels import PROJECT, distributions, needed_by, third_party

each_distribution = pytest.mark.parametrize("name", sorted(distributions()))


DEVELOPERS = ("cli/demo.py", "cli/local.py", "demo/", "local/", "testing/")


def test_every_module_of_the_library_is_in_one_wheel_and_developers_tools_in_none() -> None:
    counted = Counter(file for each in distributions().values() for file in each.files)
    assert {file: count for file, count in counted.items() if count > 1} == {}
    tree = {
        str(path.relative_to(PROJECT / "src"))
        for path in (PROJECT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert tree - set(counted) == {
        file for file in tree if file.startswith(tuple(f"twinlog/{part}" for part in DEVELOPERS))
    }


@each_distribution
def test_a_distribution_imports_only_what_is_installed_with_it(name: str) -> None:
    wanted = distributions()[name]
    present = set(wanted.modules).union(*(each.modules for each in needed_by(wanted)))
    all_of_ours = set().union(*(each.modules for each in distributions().values()))
    missing = set()
    for file, imported in wanted.imports():
        module = imported if imported in all_of_ours else imported.rpartition(".")[0]
        if imported.startswith("twinlog") and module not in present:
            missing.add((file, module))
    assert missing == set()


@each_distribution
def test_what_a_distribution_imports_of_others_is_declared(name: str) -> None:
    wanted = distributions()[name]
    declared = {
        canonicalize_name(requirement.name)
        for each in (wanted, *needed_by(wanted))
        for requirement in each.requirements
    }
    assert third_party(wanted.imports()) - declared == set()


def test_an_application_installs_a_handful_of_packages_for_the_client() -> None:
    client = distributions()["twinlog-client"]
    others = {
        requirement.name
        for each in (client, *needed_by(client))
        for requirement in each.requirements
        if not requirement.name.startswith("twinlog")
    }
    assert others == {"aiokafka", "cramjam", "cryptography", "google-crc32c", "kio"}
    assert {each.name for each in needed_by(client)} == {"twinlog-core"}


def test_all_distributions_are_one_release() -> None:
    for each in distributions().values():
        assert each.version == __version__, each.name
        ours = [requirement for requirement in each.requirements if requirement.name in distributions()]
        assert all(str(requirement.specifier) == f"=={__version__}" for requirement in ours), each.name
