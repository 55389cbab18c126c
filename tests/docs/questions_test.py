"""Messages that docs/questions.md quotes are those of the program."""

import json
import logging
import re
from pathlib import Path
from typing import Any, Callable, Dict

import pytest
import torch
from allennlp.data import Vocabulary

from allennlp_elmo_plugin import Elmo
from allennlp_elmo_plugin.bilm.log_uniform_sampler import LogUniformSampler
from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from tests.support.testing import write_random_elmo

PAGE = (Path(__file__).parents[2] / "docs" / "questions.md").read_text(encoding="utf-8")
QUOTED = [match[2] for match in re.finditer(r"^> (`+) ?(.*?) ?\1$", PAGE, re.MULTILINE)]


def with_option(section: str, key: str, value: int) -> None:
    options = json.loads(Path("my_elmo/options.json").read_text())
    options[section][key] = value
    Path("o300.json").write_text(json.dumps(options))
    Elmo("o300.json", "my_elmo/weights.hdf5")


def read(text: str, encoding: str = "utf-8") -> None:
    Path("my_text.txt").write_text(text, encoding=encoding)
    make_vocabulary("my_text.txt", "my_vocab")
    vocab = Vocabulary.from_files("my_vocab/vocabulary")
    list(TruncatedBpttLmReader(128).batches("my_text.txt", 0, 0, vocab))


CAUSES: Dict[str, Callable[[], Any]] = {
    "o300.json": lambda: with_option("char_cnn", "n_characters", 300),
    "my_elmo/weights.hdf5": lambda: with_option("lstm", "dim", 32),
    "got character ids": lambda: Elmo("my_elmo")(torch.full((1, 3, 50), 5000)),
    "my_text.txt: is this text tok": lambda: read("Oh, yes, this is not tokenised, is it?\n"),
    "my_text.txt: 1 of 4 words": lambda: read("а" * 30 + " b c d\n"),
    "my_text.txt, line 1": lambda: read("Caf\xe9 .\n", "latin-1"),
    "my_text.txt is smaller": lambda: read("One sentence .\nAnother one .\n"),
    "cannot draw 8192": lambda: LogUniformSampler(8, 8192),
}
"""What fails with, or logs, the message that begins so."""


@pytest.mark.parametrize("start", CAUSES)
def test_a_message_is_printed_as_the_page_quotes_it(
    start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_elmo").mkdir()
    write_random_elmo(tmp_path / "my_elmo")
    (message,) = [each for each in QUOTED if each.startswith(start)]
    found = ""
    with caplog.at_level(logging.WARNING):
        try:
            CAUSES[start]()
        except Exception as error:
            found = str(error)
    assert message in [*found.splitlines(), *(record.getMessage() for record in caplog.records)]
