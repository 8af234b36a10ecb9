"""Settings: each wrong one is named, with its value and what is allowed."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpu_runtime.environments.registry import FAMILIES
from gpu_runtime.placement.local import load_bases
from gpu_runtime.placement.serving import build_pool
from gpu_runtime.services.config import ConfigurationError, RuntimeConfig
from tests.support.runtime import REPOSITORY, SETTINGS


def read(tmp_path: Path, listen: str = "127.0.0.1:0", **environment: str) -> RuntimeConfig:
    return RuntimeConfig.read(
        state=str(tmp_path / "state"), listen=listen, datasets=str(tmp_path), environment=SETTINGS | environment
    )


def test_numbers_and_names_come_from_the_environment(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        JOYNEXUS_RUNTIME_WINDOW_MS="70",
        JOYNEXUS_RUNTIME_DTYPE="bfloat16",
        JOYNEXUS_BASE_MODELS="tiny-qwen3-vl,big=Qwen/Qwen3-VL-4B-Instruct",
    )
    assert (config.window_ms, config.dtype) == (70, "bfloat16")
    assert config.bases["big"].source == "Qwen/Qwen3-VL-4B-Instruct"


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"JOYNEXUS_RUNTIME_TOKEN": "short"}, "JOYNEXUS_RUNTIME_TOKEN: 5 characters; at least 16"),
        ({"JOYNEXUS_RUNTIME_WINDOW_MS": "-1"}, "JOYNEXUS_RUNTIME_WINDOW_MS is -1; allowed: at least 0"),
        ({"JOYNEXUS_RUNTIME_THREADS": "two"}, "JOYNEXUS_RUNTIME_THREADS is 'two'; a whole number"),
        ({"JOYNEXUS_RUNTIME_DTYPE": "int8"}, "'int8': allowed are float32, bfloat16 and float16"),
        ({"JOYNEXUS_RUNTIME_ENV_DEVICE": "cuda:1"}, "JOYNEXUS_RUNTIME_ENV_DEVICE is 'cuda:1'; allowed: cpu and cuda"),
        ({"JOYNEXUS_RUNTIME_VERIFY_DATASETS": "2"}, "VERIFY_DATASETS is 2; allowed: 0 and 1"),
        ({"JOYNEXUS_RUNTIME_HEAD_POOL": "2"}, "HEAD_POOL is 2; allowed: 0 and 1"),
        ({"JOYNEXUS_RUNTIME_GROUP_LORA": "2"}, "JOYNEXUS_RUNTIME_GROUP_LORA is 2; allowed: 0 and 1"),
        ({"JOYNEXUS_RUNTIME_DEDUP_FRAMES": "-1"}, "JOYNEXUS_RUNTIME_DEDUP_FRAMES is -1; allowed: 0 and 1"),
        ({"JOYNEXUS_RUNTIME_TRUNCATE_DEPTH": "3"}, "JOYNEXUS_RUNTIME_TRUNCATE_DEPTH is 3; allowed: 0 and 1"),
        (
            {"JOYNEXUS_RUNTIME_WINDOW": "5"},
            "JOYNEXUS_RUNTIME_WINDOW: no such setting; allowed: JOYNEXUS_RUNTIME_CACHE",
        ),
        ({"JOYNEXUS_RUNTIME_STATE": "/x"}, "JOYNEXUS_RUNTIME_STATE: no such setting"),
        ({"JOYNEXUS_BASE_MODELS": "gpt"}, "'gpt': not built in"),
        ({"JOYNEXUS_BASE_MODELS": ""}, "names no base model"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(tmp_path: Path, environment: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read(tmp_path, **environment)
    assert says in str(refused.value)


@pytest.mark.parametrize("listen", ["unix:", f"unix:/{'x' * 107}", "8000", "localhost:http", ":80", "h:65536", "h:²"])
def test_an_address_that_cannot_be_listened_on_is_refused(tmp_path: Path, listen: str) -> None:
    with pytest.raises(ConfigurationError, match="--listen"):
        read(tmp_path, listen)


def test_the_control_planes_own_setting_of_the_same_prefix_does_not_disturb(tmp_path: Path) -> None:
    assert read(tmp_path, JOYNEXUS_RUNTIME_URL="unix:///s") == read(tmp_path)


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "meta"])
def test_a_device_that_is_not_there_is_refused_by_name(tmp_path: Path, device: str) -> None:
    with pytest.raises(ConfigurationError, match=f"device '{device}': "):
        load_bases(read(tmp_path, JOYNEXUS_RUNTIME_DEVICE=device))


async def test_simulators_follow_the_device_that_is_set_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_gpu = read(tmp_path, JOYNEXUS_RUNTIME_ENV_DEVICE="cuda")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigurationError, match=r"JOYNEXUS_RUNTIME_ENV_DEVICE is 'cuda'.* allowed: cpu"):
        build_pool(on_gpu, FAMILIES)
    assert build_pool(read(tmp_path), FAMILIES).device == "cpu"
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert build_pool(on_gpu, FAMILIES).device == "cuda"


def test_a_dataset_root_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not a folder"):
        RuntimeConfig.read(
            state=str(tmp_path), listen="h:1", datasets=str(tmp_path / "none"), environment=dict(SETTINGS)
        )


def test_the_command_ends_with_status_2_and_one_line_for_a_wrong_setting(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gpu_runtime", "serve", "--state", str(tmp_path), "--listen", "x:1"]
    done = subprocess.run(
        [*command, "--datasets", str(tmp_path)], cwd=REPOSITORY, capture_output=True, text=True, env={"PATH": ""}
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.strip() == "gpu_runtime serve: JOYNEXUS_RUNTIME_TOKEN: 0 characters; at least 16 are needed"


def test_asking_for_help_names_every_subcommand_and_loads_no_torch() -> None:
    code = (
        "import sys, gpu_runtime.__main__ as m\n"
        "try: m.main(['--help'])\n"
        "except SystemExit: print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True)
    assert all(name in done.stdout for name in ("serve", "act", "record", "validate")), done
    assert done.stdout.splitlines()[-1] == "False"
