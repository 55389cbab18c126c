"""AllenNLP's own commands with a language model, on a run of a few steps."""

import io
import json
import logging
import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Dict, List

import huggingface_hub
import pytest
from allennlp.commands import evaluate, main
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.predictors import Predictor

from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.models.bidirectional_lm_predictor import (
    BidirectionalLanguageModelPredictor,
)
from allennlp_elmo_plugin.patches.commands import _check_archive
from tests.support.hub import Hub
from tests.support.pretraining import write_text

READER = {"type": "truncated_bptt_lm", "batch_size": 4, "num_steps": 5}
CONFIG: Dict[str, Any] = {
    "dataset_reader": READER,
    "validation_dataset_reader": {**READER, "drop_last": False},
    "train_data_path": "train.txt",
    "validation_data_path": "validation.txt",
    "vocabulary": {"type": "from_files", "directory": "vocab/vocabulary"},
    "model": {
        "type": "bidirectional_lm",
        "num_samples": 0,
        "options": {
            "char_cnn": {"embedding": {"dim": 3}, "filters": [[1, 4], [3, 5]]},
            "lstm": {"dim": 7, "projection_dim": 5, "n_layers": 2},
        },
    },
    "data_loader": {"type": "truncated_bptt"},
    "trainer": {
        "num_epochs": 2,
        "validation_metric": "-perplexity",
        "optimizer": {"type": "adagrad", "lr": 0.2, "initial_accumulator_value": 1.0},
        "grad_norm": 10.0,
    },
}


def train(folder: str) -> None:
    """Train in a folder, and keep the handlers of logging, which AllenNLP replaces."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        train_model(Params.from_file("config.json"), folder)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus, `config.json` and the folder `run` of its training."""
    folder = tmp_path_factory.mktemp("home")
    write_text(folder / "train.txt", seed=1, n_sentences=24)
    write_text(folder / "validation.txt", seed=2, n_sentences=4)
    make_vocabulary(folder / "train.txt", folder / "vocab")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        train("run")
    return folder


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    """Runs a command in the folder, and returns its standard output."""
    monkeypatch.chdir(home)

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["allennlp", *arguments])
        main()
        return capsys.readouterr().out

    return run


def test_training_shows_where_it_is(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(home)
    monkeypatch.delenv("ALLENNLP_LOG_LEVEL", raising=False)
    train(str(tmp_path / "run"))
    lines = [line for line in capsys.readouterr().err.splitlines() if "%|" in line]
    # One line a pass, as the work is short, and standard error no terminal.
    titles = ["epoch 1/2", "epoch 1/2, validation", "epoch 2/2", "epoch 2/2, validation"]
    assert [line.split(":")[0] for line in lines] == titles
    for line in lines[::2]:
        assert re.search(r"100%\|.* [1-9][0-9,]* words/s, perplexity: ", line)
    assert "words/s" not in lines[1]
    # The speed of the machine is no metric.
    metrics = [
        {key: value for key, value in json.loads(path.read_text()).items() if "perp" in key}
        for path in (home / "run" / "metrics.json", tmp_path / "run" / "metrics.json")
    ]
    assert metrics[0] == metrics[1] and metrics[0]
    text = (tmp_path / "run" / "metrics.json").read_text(encoding="utf-8")
    assert "words" not in text
    assert "epoch 2/2" in (tmp_path / "run" / "out.log").read_text(encoding="utf-8")


class TestPredict:
    def predict(self, run: Any, text: str, *arguments: str) -> List[Any]:
        Path("in.txt").write_text(text, encoding="utf-8")
        run("predict", "run/model.tar.gz", "in.txt", "--output-file", "out.jsonl", *arguments)
        return [json.loads(line) for line in Path("out.jsonl").read_text("utf-8").splitlines()]

    def test_sentences_and_json(self, run: Any) -> None:
        plain = self.predict(run, 'word0 naïve\n\n  [ word1 ]\n"word2"\n3\n')
        assert [each["tokens"] for each in plain] == [
            ["word0", "naïve"],
            ["[", "word1", "]"],
            ['"word2"'],
            ["3"],
        ]
        assert plain[0]["unknown"] == ["naïve"]
        lines = ['{"sentence": "word0 naïve"}', '{"tokens": ["word0", "naïve"]}', "word0 naïve"]
        assert self.predict(run, "\n".join(lines)) == [plain[0]] * 3
        assert "naïve" in Path("out.jsonl").read_text("utf-8")

    def test_all_are_sentences(self, run: Any) -> None:
        (found,) = self.predict(run, '{"a": 1}\n', "--predictor-args", '{"plain_text": true}')
        assert found["tokens"] == ['{"a":', "1}"]

    @pytest.mark.parametrize("line", ['{"sentence": 3}', "{broken", '["word0", "word1"]'])
    def test_neither(self, line: str, run: Any, capsys: Any) -> None:
        with pytest.raises(SystemExit, match="^1$"):
            self.predict(run, line)
        assert "each line is a sentence, " in capsys.readouterr().err.splitlines()[-1]

    @pytest.mark.parametrize(
        "archive, text, error",
        [
            ("no.tar.gz", "train.txt", "There is no archive no.tar.gz (looked from "),
            ("run/model.tar.gz", "no.txt", "no.txt does not exist (looked from "),
            ("run/model.tar.gz", "run", "run is a folder (looked from "),
        ],
    )
    def test_missing_files(
        self, archive: str, text: str, error: str, run: Any, capsys: Any
    ) -> None:
        with pytest.raises(SystemExit, match="^1$"):
            run("predict", archive, text)
        assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {error}")

    def test_the_config_is_not_logged(self, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        log = io.StringIO()
        root = logging.getLogger()
        monkeypatch.setattr(root, "handlers", [logging.StreamHandler(log)])
        monkeypatch.setattr(root, "level", logging.INFO)
        for name in ("ALLENNLP_DEBUG", "ALLENNLP_LOG_LEVEL"):
            monkeypatch.delenv(name, raising=False)
        self.predict(run, "word0\n")
        assert "model.tar.gz" in log.getvalue()  # It is being extracted.
        assert "model.type" not in log.getvalue()

    def test_standard_output(self, run: Any) -> None:
        Path("in.txt").write_text("naïve\n", encoding="utf-8")
        assert 'prediction:  {"tokens": ["naïve"]' in run("predict", "run/model.tar.gz", "in.txt")


def test_a_model_whose_numbers_look_like_a_zip_archive(tmp_path: Path) -> None:
    (tmp_path / "weights.th").write_bytes(b"PK\5\6" + bytes(18))
    path = tmp_path / "model.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=0) as archive:
        archive.add(tmp_path / "weights.th", "weights.th")
    assert zipfile.is_zipfile(path)
    _check_archive(str(path))


@pytest.mark.parametrize(
    "archive, text, error",
    [
        ("no.tar.gz", "train.txt", "There is no archive no.tar.gz (looked from "),
        ("run/model.tar.gz", "no.txt", "no.txt does not exist (looked from "),
        ("train.txt", "train.txt", "train.txt is not a model.tar.gz, or a damaged one ("),
        ("cut.tar.gz", "train.txt", "cut.tar.gz is not a model.tar.gz, or a damaged one ("),
        (
            "x.zip",
            "train.txt",
            "x.zip is a zip archive, not a model.tar.gz; `allennlp elmo-import ",
        ),
        ("elmo", "train.txt", "elmo is not the folder of a training run: it has no config.json; "),
    ],
)
def test_evaluation_of_missing_files(
    archive: str, text: str, error: str, run: Any, capsys: Any
) -> None:
    Path("cut.tar.gz").write_bytes(Path("run/model.tar.gz").read_bytes()[:2000])
    with zipfile.ZipFile("x.zip", "w"):
        pass
    Path("elmo").mkdir(exist_ok=True)
    Path("elmo/options.json").write_text("{}", encoding="utf-8")
    with pytest.raises(SystemExit, match="^1$"):
        run("evaluate", archive, text)
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {error}")


@pytest.mark.parametrize(
    "command, option",
    [
        ("evaluate", "--output-file"),
        ("evaluate", "--predictions-output-file"),
        ("predict", "--output-file"),
    ],
)
def test_wrong_outputs(command: str, option: str, run: Any, capsys: Any) -> None:
    for output, reason in (("no/out.json", "there is no folder "), ("run", "it is a folder, ")):
        with pytest.raises(SystemExit, match="^1$"):
            run(command, "run/model.tar.gz", "validation.txt", option, output)
        printed = capsys.readouterr()
        assert printed.err.splitlines()[-1].startswith(f"error: cannot write {output}: {reason}")
        assert "perplexity" not in printed.out  # It ends before the work.


def test_ignored_output(run: Any, tmp_path: Path) -> None:
    text = shutil.copy("validation.txt", tmp_path)
    ignored = ("--output-file", "no/out.json", "--auto-names", "METRICS")
    run("evaluate", "run/model.tar.gz", str(text), *ignored)
    assert (tmp_path / "validation.outputs").exists()


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_ctrl_c(command: str, run: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def press(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(BidirectionalLanguageModel, "forward", press)
    monkeypatch.setattr(BidirectionalLanguageModelPredictor, "predict_json", press)
    with pytest.raises(SystemExit, match="^130$"):
        run(command, "run/model.tar.gz", "validation.txt")
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted"


def test_evaluation_in_a_program_of_ones_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "argv", ["mine.py", "evaluate"])
    with pytest.raises(FileNotFoundError):
        evaluate.evaluate_from_archive("no.tar.gz", "validation.txt")


def test_find_lr(run: Any, tmp_path: Path) -> None:
    """More batches than an epoch has, so that the text starts again."""
    changes = {"trainer.optimizer": {"type": "dense_sparse_adam"}, "model.num_samples": 9}
    arguments = ["find-lr", "config.json", "-s", str(tmp_path), "--num-batches", "11"]
    run(*arguments, "-o", json.dumps(changes))
    assert (tmp_path / "lr-losses.png").stat().st_size > 1000


def test_count_instances(run: Any) -> None:
    n_batches = TruncatedBpttLmReader(batch_size=4, num_steps=5).count_batches("train.txt")
    printed = run("count-instances", "config.json")
    assert printed == f"Success! One epoch of training contains {4 * n_batches} instances.\n"


def test_build_vocab(run: Any, tmp_path: Path) -> None:
    output = tmp_path / "vocab.tar.gz"
    assert "Success! Vocab saved" in run("build-vocab", "config.json", str(output))
    with tarfile.open(output) as archive:
        assert sorted(archive.getnames()) == ["lm_tokens.txt", "non_padded_namespaces.txt"]
    built, made = (Vocabulary.from_files(path) for path in (str(output), "vocab/vocabulary"))
    assert built.get_index_to_token_vocabulary("lm_tokens") == made.get_index_to_token_vocabulary(
        "lm_tokens"
    )


def test_build_vocab_from_instances(run: Any, tmp_path: Path) -> None:
    config = {key: value for key, value in CONFIG.items() if key != "vocabulary"}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    output = tmp_path / "vocab.tar.gz"
    with pytest.raises(ConfigurationError, match="no namespace lm_tokens; make it with `allennlp"):
        run("build-vocab", str(tmp_path / "config.json"), str(output))
    assert not output.exists()


def test_diff(run: Any) -> None:
    (first,) = Path("run").glob("model_state_e1_*.th")
    lines = run("diff", "run/model.tar.gz", str(first)).splitlines()
    assert len(lines) > 20 and any("softmax.weight, shape = " in line for line in lines)
    assert {"!"} <= {re.sub(r"\x1b\[\d+m", "", line)[0] for line in lines} <= {"!", " "}


def test_print_results(run: Any) -> None:
    printed = run("print-results", ".", "-k", "best_validation_perplexity", "missing")
    perplexity = json.loads(Path("run/metrics.json").read_text())["best_validation_perplexity"]
    assert printed.splitlines()[1:] == [f"./run/metrics.json, {perplexity}, N/A"]


def test_cached_path(run: Any) -> None:
    assert run("cached-path", "run/model.tar.gz") == "run/model.tar.gz\n"


class TestPushToHf:
    @pytest.fixture(autouse=True)
    def hub(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Hub, "calls", [])
        monkeypatch.setattr(Hub, "files", [])
        monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
        monkeypatch.setattr(huggingface_hub.HfFolder, "get_token", lambda: "token")

    @pytest.mark.parametrize("source", ["-a run/model.tar.gz", "-s run", "-s unfinished"])
    def test_prepares_and_uploads(self, source: str, run: Any, tmp_path: Path) -> None:
        if source == "-s unfinished" and not Path("unfinished").exists():
            Path("unfinished").mkdir()
            for name in ("best.th", "config.json", "vocabulary"):
                Path("unfinished", name).symlink_to(Path("run", name).resolve())
        arguments = ["-n", "my-elmo", "-l", str(tmp_path), *source.split()]
        printed = run("push-to-hf", *arguments)
        assert printed == "The model is at https://huggingface.co/user/my-elmo\n"
        folder = tmp_path / "my-elmo"
        settings = {"token": "token", "exist_ok": True}
        assert Hub.calls[0] == ("create", "my-elmo", settings)
        assert Hub.calls[1][1] == {
            "repo_id": "user/my-elmo",
            "folder_path": str(folder),
            "commit_message": "Update repository",
            "token": "token",
            "ignore_patterns": [],
        }
        assert ("metrics.json" in {path.name for path in folder.iterdir()}) == (
            source != "-s unfinished"
        )
        card = (folder / "README.md").read_text(encoding="utf-8")
        assert card.startswith("---\nlibrary_name: allennlp\ntags:\n")
        assert "| validation |" in card or source == "-s unfinished"
        # What AllenNLP downloads from there.
        predictor = Predictor.from_path(str(folder))
        assert predictor.predict_json({"sentence": "word0"})["tokens"] == ["word0"]

    def test_keeps_a_card_that_is_there(self, run: Any, tmp_path: Path) -> None:
        arguments = ["push-to-hf", "-n", "a", "-o", "org", "-a", "run/model.tar.gz"]
        arguments += ["-l", str(tmp_path)]
        Hub.files = ["README.md"]
        run(*arguments)
        assert Hub.calls[0][1] == "org/a"
        assert Hub.calls[1][1]["ignore_patterns"] == ["README.md"]
        (tmp_path / "a" / "README.md").write_text("mine", encoding="utf-8")
        run(*arguments)
        assert Hub.calls[3][1]["ignore_patterns"] == []
        assert (tmp_path / "a" / "README.md").read_text(encoding="utf-8") == "mine"

    def test_nobody_is_logged_in(
        self, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ) -> None:
        monkeypatch.setattr(huggingface_hub.HfFolder, "get_token", lambda: None)
        with pytest.raises(SystemExit, match="^1$"):
            run("push-to-hf", "-n", "a", "-a", "run/model.tar.gz", "-l", str(tmp_path))
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith(f"error: {tmp_path}/a is ready, but nobody is logged in")
        assert Hub.calls == [] and (tmp_path / "a" / "weights.th").exists()

    @pytest.mark.parametrize(
        "source, message",
        [
            (["-a", "missing"], "There is no archive missing"),
            (["-s", "vocab"], "vocab has neither model.tar.gz nor best.th"),
        ],
    )
    def test_no_model(
        self, source: List[str], message: str, run: Any, tmp_path: Path, capsys: Any
    ) -> None:
        with pytest.raises(SystemExit, match="^1$"):
            run("push-to-hf", "-n", "a", "-l", str(tmp_path), *source)
        assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {message}")
        assert not (tmp_path / "a").exists() and Hub.calls == []
