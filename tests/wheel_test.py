"""What an installed package has."""

import subprocess
import sys
import zipfile
from pathlib import Path


def test_the_wheel_has_all_modules_and_configs(repository_root: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    files = subprocess.run(
        ["git", "ls-files"], cwd=repository_root, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    for name in filter(None, files):
        if not name.startswith(("tests/", "docs/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((repository_root / name).read_bytes())
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "."],
        cwd=source,
        check=True,
    )
    (wheel,) = source.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {name for name in files if name.startswith("allennlp_elmo_plugin/")}
    expected |= {
        f"allennlp_elmo_plugin/{name}" for name in files if name.startswith("training_config/")
    }
    assert packed == expected
