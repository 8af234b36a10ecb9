"""The backports entry that deploy/system-packages.sh derives from a machine's own Debian entry."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "system-packages.sh"

DEB822 = """\
Types: deb-src
URIs: http://sources.example.org/debian
Suites: bookworm

Types: deb
# a comment inside
URIs: http://mirror.example.org/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 key of the mirror
 -----END PGP PUBLIC KEY BLOCK-----

Types: deb
URIs: http://mirror.example.org/debian-security
Suites: bookworm-security
Components: main
"""
OTHER = "Types: deb\nURIs: http://nodes.example.org\nSuites: nodistro\nComponents: main\n"
ONE_LINE = """\
# deb http://old.example.org/debian bookworm main
deb http://mirror.example.org/security bookworm-security main
deb [arch=amd64 signed-by=/usr/share/keyrings/mirror.gpg] http://mirror.example.org/debian bookworm main contrib
"""


def derived(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"JOYNEXUS_APT_FOLDER": str(folder)}
    return subprocess.run([str(SCRIPT), "--print-source"], capture_output=True, text=True, env=environment)


@pytest.fixture
def apt(tmp_path: Path) -> Path:
    (tmp_path / "sources.list.d").mkdir()
    return tmp_path


def test_a_deb822_entry_gives_its_address_and_key(apt: Path) -> None:
    (apt / "sources.list.d" / "debian.sources").write_text(DEB822)
    (apt / "sources.list.d" / "a-other.sources").write_text(OTHER)
    lines = derived(apt).stdout.splitlines()
    assert lines[:4] == [
        "Types: deb",
        "Suites: bookworm-backports",
        "Components: main",
        "URIs: http://mirror.example.org/debian",
    ]
    assert lines[4].rstrip() == "Signed-By:"
    assert lines[7] == " key of the mirror"
    assert len(lines) == 9


def test_a_disabled_entry_is_not_used(apt: Path) -> None:
    (apt / "sources.list.d" / "debian.sources").write_text("Enabled: no\n" + DEB822.split("\n\n")[1])
    assert derived(apt).returncode == 4


def test_a_one_line_entry_gives_its_address_and_key(apt: Path) -> None:
    (apt / "sources.list").write_text(ONE_LINE)
    assert derived(apt).stdout.splitlines()[3:] == [
        "URIs: http://mirror.example.org/debian",
        "Signed-By: /usr/share/keyrings/mirror.gpg",
    ]


def test_a_machine_without_a_debian_entry_is_told_so(apt: Path) -> None:
    done = derived(apt)
    assert done.returncode == 4
    assert "no apt entry for 'bookworm'" in done.stderr


def test_an_unknown_option_changes_nothing_and_is_refused() -> None:
    done = subprocess.run([str(SCRIPT), "--instal"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "--instal" in done.stderr


@pytest.fixture
def bare_machine(tmp_path: Path) -> dict[str, str]:
    """Environment of an ordinary user's shell on a machine that has none of the packages."""
    for name, answer in {"dpkg-query": "exit 1", "id": "echo 1000", "apt-get": "exit 99"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{answer}\n")
        (tmp_path / name).chmod(0o755)
    return os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


@pytest.mark.parametrize(("option", "status"), [([], 3), (["--check"], 1)])
def test_without_root_every_missing_package_is_named_and_nothing_is_tried(
    bare_machine: dict[str, str], option: list[str], status: int
) -> None:
    done = subprocess.run([str(SCRIPT), *option], capture_output=True, text=True, env=bare_machine)
    assert done.returncode == status
    for name in ("mesa-vulkan-drivers", "libvulkan1", "libegl1", "libgl1", "libosmesa6", "chromium"):
        assert name in done.stdout
    assert ("ask an administrator" in done.stderr) == (status == 3)


def test_a_mesa_that_is_too_old_counts_as_missing(bare_machine: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "dpkg-query").write_text("#!/bin/sh\necho installed 22.3.6-1+deb12u1\n")
    done = subprocess.run([str(SCRIPT), "--check"], capture_output=True, text=True, env=bare_machine)
    assert done.stdout.splitlines() == ["missing from bookworm-backports (Mesa >= 25): mesa-vulkan-drivers"]
