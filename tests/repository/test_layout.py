"""Facts of the repository that a build must not lose."""

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.repository.modules import PAGE, ROOT, page_with_listing

UNTOLD_SETTINGS = {"JOYNEXUS_STATIC_FROM_SOURCE"}  # for those who work on the pages
TOP_LEVEL = {"deploy", "frontend", "gpu_runtime", "jobs", "platform", "tenants", "tests"}


def tracked() -> list[Path]:
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(line) for line in listing.stdout.splitlines()]


def test_platform_is_a_source_root_and_the_stdlib_module_is_not_shadowed():
    assert not list((ROOT / "platform").glob("*.py"))
    code = "import platform, celery; print(platform.__file__); platform.system()"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip().startswith(sysconfig.get_path("stdlib"))


def test_the_top_level_is_fixed():
    folders = {path.parts[0] for path in tracked() if len(path.parts) > 1 and not path.parts[0].startswith(".")}
    assert folders == TOP_LEVEL


def test_nothing_unpickles():
    forbidden = (
        "import pickle",
        "pickle.load",
        "torch.load" + "(",
        "allow_pickle" + "=True",
        "trust_remote_code" + "=True",
    )
    found = [
        f"{path}: {word}"
        for path in tracked()
        if path.suffix == ".py" and path != Path(__file__).relative_to(ROOT)
        for word in forbidden
        if word in (ROOT / path).read_text()
    ]
    assert found == []


def test_the_protocol_and_the_data_readers_load_no_torch():
    code = "import sys, gpu_runtime.protocol.messages, gpu_runtime.data.validation; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_web_tier_loads_no_torch():
    code = "import django, sys; django.setup(); import control_plane.urls; assert 'torch' not in sys.modules"
    environment = {"DJANGO_SETTINGS_MODULE": "control_plane.settings", "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True)


def test_the_architecture_page_has_one_true_sentence_for_every_module():
    page = PAGE.read_text()
    assert page == page_with_listing(page), "run: python -m tests.repository.modules"


def test_every_file_named_in_the_life_of_a_job_exists():
    life = PAGE.read_text().split("## The life of")[1].split("\n## ")[0]
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.py)`", life))
    assert len(named) >= 12
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_every_link_of_a_page_leads_to_a_tracked_file(page: str):
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text())
    own = {Path(link) for link in links if "://" not in link}
    assert own - set(tracked()) == set()


def test_every_setting_the_web_tier_reads_is_in_the_readme():
    sources = [ROOT / "platform/control_plane" / name for name in ("conf/environment.py", "settings.py")]
    text = "".join(source.read_text() for source in sources)
    read = set(re.findall(r"""(?:get|whole_number)\("([A-Z_]+)\"""", text))
    assert len(read) > 8
    assert {name for name in read if f"`{name}`" not in (ROOT / "README.md").read_text()} == UNTOLD_SETTINGS
