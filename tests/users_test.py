"""What hurt the users of bilm-tf: each of these was a question or a crash there."""

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from tests.support.training_runs import write_config, write_data


@pytest.mark.parametrize("shuffle", [False, True])
def test_memory_does_not_grow_with_a_file(shuffle: bool, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("allennlp_elmo_plugin.data.text.BLOCK_BYTES", 2**16)
    peaks = []
    for n_lines in (3_000, 7_500):  # 2.7 and 6.8 MB, more than two blocks
        path = tmp_path / f"{n_lines}.txt"
        path.write_text((" ".join(["word" * 25] * 9) + "\n") * n_lines, "utf-8")
        reader = TruncatedBpttLmReader(16, 80, None, shuffle_sentences=shuffle)
        tracemalloc.start()
        n_rows = 16 * sum(1 for _ in reader.batches(str(path)))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert n_rows > 0.9 * n_lines * 10 / 80
    assert peaks[1] < 1.1 * peaks[0]


ALL_COMMANDS = """
import locale, sys
from allennlp.commands import main

assert sys.flags.utf8_mode == 0
assert locale.getpreferredencoding(False).lower().replace("-", "") not in ("utf8", "cp65001")
folder = sys.argv[1]


def run(*arguments):
    sys.argv = ["allennlp", *arguments]
    main()


run("elmo-vocab", f"{folder}/shards", "--output", f"{folder}/vocabulary", "--force")
run("train", f"{folder}/config.json", "-s", f"{folder}/model")
run("evaluate", f"{folder}/model/model.tar.gz", f"{folder}/heldout.txt")
run("elmo-export", f"{folder}/model/model.tar.gz", f"{folder}/elmo")
run("predict", f"{folder}/model/model.tar.gz", f"{folder}/heldout.txt", "--predictor-args",
    '{"plain_text": true}', "--output-file", f"{folder}/scores.jsonl", "--silent")
run("elmo", f"{folder}/heldout.txt", f"{folder}/layers.hdf5", "--top",
    "--options-file", f"{folder}/elmo/options.json", "--weight-file", f"{folder}/elmo/weights.hdf5")
"""


@pytest.mark.nightly
def test_files_are_utf_8_whatever_the_locale(
    tmp_path: Path, repository_root: Path, subprocess_environment
) -> None:
    sentence = "naïve 東京 ﬁsh"
    write_data(tmp_path)
    (tmp_path / "shards" / "4.txt").write_text(f"{sentence}\n" * 3, encoding="utf-8")
    (tmp_path / "heldout.txt").write_text(f"{sentence}\n", encoding="utf-8")
    write_config(tmp_path, tmp_path, {"trainer.callbacks": [], "trainer.num_epochs": 1})
    environment = {**subprocess_environment, "LC_ALL": "C", "LANG": "C"}
    environment.update(PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    process = subprocess.run(
        [sys.executable, "-c", ALL_COMMANDS, str(tmp_path)],
        cwd=repository_root,
        env=environment,
        capture_output=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr.decode("utf-8", "replace")[-3000:]
    words = (tmp_path / "elmo" / "vocab.txt").read_text(encoding="utf-8").split("\n")
    assert set(sentence.split()) < set(words)
    scores = json.loads((tmp_path / "scores.jsonl").read_text(encoding="utf-8"))
    assert scores["tokens"] == sentence.split() and scores["unknown"] == []
