"""Messages that docs/questions.md quotes are those of the program."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.data import Vocabulary

from allennlp_elmo_plugin import Elmo
from allennlp_elmo_plugin.bilm.log_uniform_sampler import LogUniformSampler
from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.plugin.components.truncated_bptt_reader import TruncatedBpttLmReader
from tests.conftest import REPOSITORY_ROOT
from tests.support.testing import write_random_elmo


def change_option(before: str, after: str) -> None:
    options = Path("my_elmo/options.json").read_text().replace(before, after)
    Path("o300.json").write_text(options)
    Elmo("o300.json", "my_elmo/weights.hdf5")


def read(text: str, encoding: str = "utf-8") -> None:
    Path("my_text.txt").write_text(text, encoding=encoding)
    make_vocabulary("my_text.txt", "my_vocab", force=True)
    vocab = Vocabulary.from_files("my_vocab/vocabulary")
    list(TruncatedBpttLmReader(128).batches("my_text.txt", 0, 0, vocab))


CAUSES: list[Callable[[], Any]] = [
    lambda: change_option('"n_characters": 262', '"n_characters": 300'),
    lambda: change_option('"dim": 16', '"dim": 32'),
    lambda: Elmo("my_elmo")(torch.full((1, 3, 50), 5000)),
    lambda: read("Oh, yes, this is not tokenised, is it?\n"),
    lambda: read("а" * 30 + " b c d\n"),
    lambda: read("Caf\xe9 .\n", "latin-1"),
    lambda: read("One sentence .\nAnother one .\n"),
    lambda: LogUniformSampler(8, 8192),
]
STARTS = ("o300.json", "my_elmo/weights", "got character ids", "my_text.txt", "cannot draw")
"""What fails with, or logs, the messages that begin so."""


def test_messages_are_printed_as_the_page_quotes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_elmo").mkdir()
    write_random_elmo("my_elmo")
    page = (REPOSITORY_ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
    printed = []
    for cause in CAUSES:
        try:
            cause()
        except Exception as error:
            printed += str(error).splitlines()
    printed += [record.getMessage() for record in caplog.records]
    quoted = re.findall(r"^> (`+) ?(.*?) ?\1$", page, re.MULTILINE)
    assert {text for _, text in quoted if text.startswith(STARTS)} <= {*printed}
