"""Messages that docs/questions.md quotes are produced, and compared with the page."""

import json
import logging
import re
from pathlib import Path
from typing import Any, Callable, Dict

import pytest
import torch
from allennlp.commands import main
from allennlp.common import Params
from allennlp.common.checks import check_for_gpu
from allennlp.data import Vocabulary

from allennlp_elmo_plugin import Elmo
from allennlp_elmo_plugin.bilm.log_uniform_sampler import LogUniformSampler
from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.training.run_folder import train_model
from tests.support.testing import write_random_elmo

PAGE = (Path(__file__).parents[2] / "docs" / "questions.md").read_text(encoding="utf-8")
QUOTED = [match[2] for match in re.finditer(r"^> (`+) ?(.*?) ?\1$", PAGE, re.MULTILINE)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_elmo").mkdir()
    write_random_elmo(tmp_path / "my_elmo")
    write("One sentence .\nAnother one .\n")
    return tmp_path


def write(text: str, encoding: str = "utf-8") -> None:
    Path("my_text.txt").write_text(text, encoding=encoding)


def embed_twice() -> None:
    command = "allennlp elmo my_text.txt layers.hdf5 --all --options-file my_elmo"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", command.split())
        main()
        main()


def options_with(name: str, section: str, key: str, value: int) -> Elmo:
    options = json.loads(Path("my_elmo/options.json").read_text())
    options[section][key] = value
    Path(name).write_text(json.dumps(options))
    return Elmo(name, "my_elmo/weights.hdf5")


def read_text() -> None:
    make_vocabulary("my_text.txt", "my_vocab")
    vocab = Vocabulary.from_params(Params({"type": "from_files", "directory": "my_vocab"}))
    list(TruncatedBpttLmReader(128).batches("my_text.txt", 0, 0, vocab))


def train() -> None:
    Path("my_model").mkdir()
    Path("my_model/config.json").write_text("{}")
    train_model(Params({"model": {"type": "bidirectional_lm"}}), "my_model")


def with_text(text: str, encoding: str = "utf-8") -> Callable[[], None]:
    def call() -> None:
        write(text, encoding)
        make_vocabulary("my_text.txt", "my_vocab")

    return call


CAUSES: Dict[str, Callable[[], Any]] = {
    "o300.json": lambda: options_with("o300.json", "char_cnn", "n_characters", 300),
    "got character ids": lambda: Elmo("my_elmo")(torch.full((1, 3, 50), 5000)),
    "my_text.txt: is this text tok": with_text("Oh, yes, this is not tokenised, is it?\n"),
    "my_text.txt: 1 of 4 words": with_text("а" * 30 + " b c d\n"),
    "my_text.txt, line 1": with_text("Caf\xe9 .\n", "latin-1"),
    "Serialization directory": train,
    "error: layers.hdf5": embed_twice,
    "my_elmo/weights.hdf5": lambda: options_with("o32.json", "lstm", "dim", 32),
    "cannot draw 8192": lambda: LogUniformSampler(8, 8192),
    "my_text.txt is smaller": read_text,
    "Experiment specified": lambda: check_for_gpu(0),
}
"""What fails with, or logs, the message that begins so."""


@pytest.mark.parametrize("start", CAUSES)
def test_a_message_is_printed_as_the_page_quotes_it(start: str, caplog: Any, capsys: Any) -> None:
    (message,) = [each for each in QUOTED if each.startswith(start)]
    if start.startswith("Experiment specified") and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    found = ""
    with caplog.at_level(logging.WARNING):
        try:
            CAUSES[start]()
        except Exception as error:
            found = str(error)
        except SystemExit:
            found = capsys.readouterr().err
    assert message in [*found.splitlines(), *(record.getMessage() for record in caplog.records)]
