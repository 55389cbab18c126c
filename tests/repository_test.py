"""Targets of the Makefile."""

import shutil
import subprocess
from pathlib import Path
from typing import Optional

import pytest


@pytest.mark.parametrize("browser", ["chromium", "google-chrome", None])
def test_a_browser_without_apt_get(
    browser: Optional[str], repository_root: Path, tmp_path: Path
) -> None:
    for name in ("make", "sh", "id"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    if browser is not None:
        (tmp_path / browser).touch(0o755)
    process = subprocess.run(
        ["make", "browser"],
        cwd=repository_root,
        env={"PATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert (process.returncode == 0) == (browser is not None)
    assert ("Install Chromium" in process.stdout) == (browser is None)
