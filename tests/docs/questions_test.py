"""Messages that docs/questions.md quotes are produced, and compared with the page."""

import json
import logging
import re
from pathlib import Path
from typing import Any, Callable, Dict

import pytest
import torch
from allennlp.commands import main
from allennlp.common import Params, Registrable
from allennlp.common.checks import check_for_gpu
from allennlp.data import Vocabulary
from allennlp.models import Model

from allennlp_elmo_plugin import Elmo, ElmoEmbedder
from allennlp_elmo_plugin.bilm.log_uniform_sampler import LogUniformSampler
from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.training.run_folder import train_model
from tests.support.testing import write_random_elmo

PAGE = (Path(__file__).parents[2] / "docs" / "questions.md").read_text(encoding="utf-8")
QUOTED = [match[2] for match in re.finditer(r"^> (`+) ?(.*?) ?\1$", PAGE, re.MULTILINE)]
LM = {"type": "bidirectional_lm", "num_samples": 0}
READER = {"type": "truncated_bptt_lm", "batch_size": 128}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_elmo").mkdir()
    write_random_elmo(tmp_path / "my_elmo")
    write("One sentence .\nAnother one .\n")
    return tmp_path


def write(text: str, encoding: str = "utf-8") -> None:
    Path("my_text.txt").write_text(text, encoding=encoding)


def command(*arguments: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["allennlp", *arguments])
        main()


def embed() -> None:
    command("elmo", "my_text.txt", "layers.hdf5", "--all", "--options-file", "my_elmo")


def count() -> None:
    command("elmo-vocab", "my_text.txt", "--output", "my_vocab")


def options_with(name: str, section: str, key: str, value: int) -> Elmo:
    options = json.loads(Path("my_elmo/options.json").read_text())
    options[section][key] = value
    Path(name).write_text(json.dumps(options))
    return Elmo(name, "my_elmo/weights.hdf5")


def read_text() -> None:
    make_vocabulary("my_text.txt", "my_vocab")
    vocab = Vocabulary.from_params(Params({"type": "from_files", "directory": "my_vocab"}))
    list(TruncatedBpttLmReader(128).batches("my_text.txt", 0, 0, vocab))


def train(n_epochs: int, recover: bool) -> None:
    run = Path("my_model")
    run.mkdir()
    (run / "config.json").write_text(json.dumps({"model": LM, "trainer": {"num_epochs": 10}}))
    (run / "model_state_e1_b0.th").write_bytes(b"")
    (run / "training_state_e1_b0.th").write_bytes(b"")
    # The config is complete enough for what is checked before anything is built.
    train_model(Params({"model": LM, "trainer": {"num_epochs": n_epochs}}), run, recover=recover)


def twice(function: Callable[[], Any]) -> Callable[[], None]:
    def call() -> None:
        function()
        function()

    return call


def with_text(text: str, encoding: str = "utf-8") -> Callable[[], None]:
    def call() -> None:
        write(text, encoding)
        make_vocabulary("my_text.txt", "my_vocab")

    return call


CAUSES: Dict[str, Callable[[], Any]] = {
    "No model was named": ElmoEmbedder,
    "o300.json": lambda: options_with("o300.json", "char_cnn", "n_characters", 300),
    "got character ids": lambda: Elmo("my_elmo")(torch.full((1, 3, 50), 5000)),
    "got the text": lambda: ElmoEmbedder("my_elmo").embed_sentence("A sentence ."),  # type: ignore
    "my_text.txt: is this text tok": with_text("Oh, yes, this is not tokenised, is it?\n"),
    "my_text.txt: 1 of 4 words": with_text("а" * 30 + " b c d\n"),
    "my_text.txt, line 1": with_text("Caf\xe9 .\n", "latin-1"),
    "Serialization directory": lambda: train(10, recover=False),
    "error: The folder": twice(count),
    "error: layers.hdf5": twice(embed),
    "o32.json": lambda: options_with("o32.json", "lstm", "dim", 32),
    "options_file 'my_elm'": lambda: Elmo("my_elm"),
    "Training configuration": lambda: train(20, recover=True),
    "cannot draw 8192": lambda: LogUniformSampler(8, 8192),
    "my_text.txt is smaller": read_text,
    "Experiment specified": lambda: check_for_gpu(0),
}
"""What fails with, or logs, the message that begins so."""


def of(start: str, table: Dict[str, Any]) -> Any:
    return next((value for key, value in table.items() if start.startswith(key)), None)


def test_each_cause_is_of_a_message() -> None:
    assert len(QUOTED) == PAGE.count("\n> ")
    assert all(any(message.startswith(start) for message in QUOTED) for start in CAUSES)


@pytest.mark.parametrize("message", [each for each in QUOTED if of(each, CAUSES)])
def test_messages(message: str, caplog: Any, capsys: Any) -> None:
    if message.startswith("Experiment specified") and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    found = ""
    with caplog.at_level(logging.WARNING):
        try:
            of(message, CAUSES)()
        except Exception as error:
            found = str(error)
        except SystemExit:
            found = capsys.readouterr().err
    lines = [*found.splitlines(), *(record.getMessage() for record in caplog.records)]
    assert message in lines


def test_a_name_that_is_not_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(Registrable._registry[Model], "bidirectional_lm")
    with pytest.raises(Exception) as raised:
        Model.by_name("bidirectional_lm")
    message = "'bidirectional_lm' is not a registered name for 'Model'"
    assert str(raised.value).startswith(message)
    assert f"**`{message}`**" in PAGE
