import os
import subprocess
import sys

import pytest

from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from tests.support.layers_files import assert_same_files, make_text
from tests.support.testing import write_random_elmo

pytest.importorskip("ray.data")


def test_ray_gives_what_one_run_gives(tmp_path, repository_root, subprocess_environment):
    options_file, weight_file = write_random_elmo(tmp_path)
    (tmp_path / "text").write_text(make_text(3000), encoding="utf-8")
    command = [sys.executable, str(repository_root / "scripts/ray_embed.py"), "text", "layers"]
    command += ["--options-file", "options.json", "--weight-file", "weights.hdf5", "--top"]
    result = subprocess.run(
        [*command, "--num-shards", "3", "--workers", "1"],
        cwd=tmp_path,
        env={**subprocess_environment, "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "3,003 sentences" in result.stdout
    names = {"layers", "options.json", "text", "weights.hdf5"}
    assert set(os.listdir(tmp_path)) == names
    embedder = ElmoEmbedder(options_file, weight_file, initial_state="settled")
    with open(tmp_path / "text", "rb") as file:
        embedder.embed_file(file, str(tmp_path / "expected"), "top", batch_size=None)
    assert_same_files(tmp_path / "layers", tmp_path / "expected")
