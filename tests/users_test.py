"""What hurt the users of bilm-tf: each of these was a question or a crash there."""

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from allennlp.common import Params

from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from tests.support.pretraining import write_text

OPTIONS = {
    "bidirectional": True,
    "char_cnn": {
        "embedding": {"dim": 4},
        "filters": [[1, 4], [2, 4]],
        "max_characters_per_token": 9,
    },
    "lstm": {"dim": 8, "projection_dim": 4},
}


def config(folder: Path, n_epochs: int = 2) -> Params:
    reader = {
        "type": "truncated_bptt_lm",
        "batch_size": 4,
        "num_steps": 5,
        "max_characters_per_token": 9,
    }
    return Params(
        {
            "dataset_reader": reader,
            "validation_dataset_reader": {**reader, "drop_last": False},
            "train_data_path": str(folder / "train"),
            "validation_data_path": str(folder / "validation.txt"),
            "vocabulary": {"type": "from_files", "directory": str(folder / "vocab/vocabulary")},
            "model": {"type": "bidirectional_lm", "options": OPTIONS, "num_samples": 0},
            "data_loader": {"type": "truncated_bptt"},
            "trainer": {
                "num_epochs": n_epochs,
                "validation_metric": "-perplexity",
                "optimizer": {"type": "adagrad", "lr": 0.2, "initial_accumulator_value": 1.0},
            },
        }
    )


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Shards, one of them empty, with blank lines; a held-out text smaller than a batch."""
    (tmp_path / "train").mkdir()
    write_text(tmp_path / "train" / "a", seed=1, n_sentences=20)
    (tmp_path / "train" / "b").touch()
    text = (tmp_path / "train" / "a").read_text(encoding="utf-8")
    (tmp_path / "train" / "c").write_text(text.replace("\n", "\n\n \t\n"), encoding="utf-8")
    (tmp_path / "validation.txt").write_text("word1 word2\n", encoding="utf-8")
    make_vocabulary(tmp_path / "train", tmp_path / "vocab")
    return tmp_path


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
import json, locale, sys
from pathlib import Path
from allennlp.commands import main

assert sys.flags.utf8_mode == 0
assert locale.getpreferredencoding(False).lower().replace("-", "") not in ("utf8", "cp65001")
folder = sys.argv[1]


def run(*arguments):
    sys.argv = ["allennlp", *arguments]
    main()


run("elmo-vocab", f"{folder}/train", "--output", f"{folder}/vocab", "--force")
run("train", f"{folder}/config.json", "-s", f"{folder}/model")
run("evaluate", f"{folder}/model/model.tar.gz", f"{folder}/validation.txt")
run("elmo-export", f"{folder}/model/model.tar.gz", f"{folder}/elmo")
run("predict", f"{folder}/model/model.tar.gz", f"{folder}/validation.txt", "--predictor-args",
    '{"plain_text": true}', "--output-file", f"{folder}/scores.jsonl", "--silent")
run("elmo", f"{folder}/validation.txt", f"{folder}/layers.hdf5", "--top",
    "--options-file", f"{folder}/elmo/options.json", "--weight-file", f"{folder}/elmo/weights.hdf5")
"""


@pytest.mark.nightly
def test_files_are_utf_8_whatever_the_locale(
    corpus: Path, repository_root: Path, subprocess_environment
) -> None:
    sentence = "naïve 東京 ﬁsh"
    with open(corpus / "train" / "a", "a", encoding="utf-8") as file:
        file.write(f"{sentence}\n" * 3)
    (corpus / "validation.txt").write_text(f"{sentence}\n", encoding="utf-8")
    (corpus / "config.json").write_text(
        json.dumps(config(corpus).as_dict(quiet=True)), encoding="utf-8"
    )
    environment = {**subprocess_environment, "LC_ALL": "C", "LANG": "C"}
    environment.update(PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    process = subprocess.run(
        [sys.executable, "-c", ALL_COMMANDS, str(corpus)],
        cwd=repository_root,
        env=environment,
        capture_output=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr.decode("utf-8", "replace")[-3000:]
    words = (corpus / "elmo" / "vocab.txt").read_text(encoding="utf-8").split("\n")
    assert set(sentence.split()) < set(words)
    scores = json.loads((corpus / "scores.jsonl").read_text(encoding="utf-8"))
    assert scores["tokens"] == sentence.split() and scores["unknown"] == []
