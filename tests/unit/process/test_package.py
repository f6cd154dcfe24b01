"""The wheel has what users of the package and its licence need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of the files in the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.iterdir()
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.mark.parametrize("package", ["onceflow", "onceflow_connectors"])
def test_type_checkers_of_users_see_our_types(package: str, names: set[str]) -> None:
    assert f"{package}/py.typed" in names


def test_the_wheel_has_the_licences(names: set[str]) -> None:
    licences = {name.partition("/licenses/")[2] for name in names if "/licenses/" in name}

    assert licences == {"LICENSE", "service/onceflow/control/static/uPlot.LICENSE"}


def test_the_licence_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")

    assert "Apache License\n" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_everything_in_a_package_that_is_no_module_is_in_the_wheel(names: set[str]) -> None:
    packages = [ROOT / "service" / "onceflow", ROOT / "connectors" / "onceflow_connectors"]
    files = {
        str(file.relative_to(package.parent))
        for package in packages
        for file in package.rglob("*")
        if file.is_file() and file.suffix != ".pyc"
    }

    assert sorted(files - names) == []
