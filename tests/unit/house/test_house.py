# SPDX-License-Identifier: Apache-2.0
"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[3]
ROLES = sorted(path for path in (CHECKOUT / "roles").iterdir() if (path / "tasks").is_dir())
STDLIB_ONLY = sorted((CHECKOUT / "plugins").glob("module*/**/*.py"))


def tracked(*patterns: str) -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [CHECKOUT / line for line in listing.stdout.splitlines() if (CHECKOUT / line).is_file()]


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_roles_argument_specs_say_what_its_defaults_say(role: Path) -> None:
    defaults = yaml.safe_load((role / "defaults" / "main.yml").read_text()) or {}
    specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]
    options = specs["main"]["options"]
    assert set(options) == set(defaults)
    for name, option in options.items():
        assert option.get("default") == defaults[name], name
        assert option["description"], name


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_roles_variables_carry_its_name(role: Path) -> None:
    defaults = yaml.safe_load((role / "defaults" / "main.yml").read_text()) or {}
    assert all(name.startswith(role.name + "_") for name in defaults)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_role_has_a_readme_of_one_screen(role: Path) -> None:
    lines = (role / "README.md").read_text().splitlines()
    assert 5 <= len(lines) <= 60


def test_every_source_file_says_its_licence() -> None:
    missing = []
    for path in tracked("*.py", "*.sh", "*.yml", "*.j2", "Makefile", ".ci/run"):
        if "tests/unit/data" in str(path) or path.name == "__init__.py":
            continue
        wanted = "GPL-3.0-or-later" if "plugins" in path.relative_to(CHECKOUT).parts[:1] else "Apache-2.0"
        if f"SPDX-License-Identifier: {wanted}" not in "\n".join(path.read_text().splitlines()[:4]):
            missing.append(str(path.relative_to(CHECKOUT)))
    assert not missing


def test_nothing_in_plugins_imports_the_controllers_package() -> None:
    for path in (CHECKOUT / "plugins").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not any(name == "pdlab" or name.startswith("pdlab.") for name in names), path


def test_nothing_in_roles_or_the_controller_asks_whether_this_is_a_rehearsal_to_behave_differently() -> None:
    for path in tracked("roles/*.yml"):
        assert "pd_rehearsal" not in path.read_text(), path


@pytest.mark.parametrize("path", sorted((CHECKOUT / "plugins" / "modules").glob("*.py")), ids=lambda path: path.stem)
def test_a_module_documents_every_option_with_its_default(path: Path) -> None:
    text = path.read_text()
    documentation = yaml.safe_load(re.search(r'DOCUMENTATION = r"""(.*?)"""', text, re.S)[1])
    assert documentation["module"] == path.stem
    assert documentation["short_description"]
    assert {"check_mode", "diff_mode"} <= set(documentation["attributes"])
    assert 'EXAMPLES = r"""' in text and 'RETURN = r"""' in text


def test_the_collection_and_the_package_have_one_version() -> None:
    from pdlab import __version__

    assert yaml.safe_load((CHECKOUT / "galaxy.yml").read_text())["version"] == __version__


def test_the_exit_statuses_are_documented_as_they_are() -> None:
    from pdlab.exit_codes import Exit

    text = (CHECKOUT / "docs" / "exit-codes.md").read_text()
    rows = {int(number) for number in re.findall(r"^\| (\d+) \|", text, re.M)}
    assert rows == {int(status) for status in Exit}
