"""Messages that docs/questions.md quotes are those of the program."""

import io
import re
from pathlib import Path
from unittest.mock import patch

import _jsonnet
import torch
from allennlp.data import Vocabulary

from allennlp_elmo_plugin import Elmo, ElmoEmbedder
from allennlp_elmo_plugin.bilm.log_uniform_sampler import LogUniformSampler
from allennlp_elmo_plugin.commands.elmo_vocab import make_vocabulary
from allennlp_elmo_plugin.plugin.components import TruncatedBpttDataLoader, TruncatedBpttLmReader
from tests.conftest import REPOSITORY_ROOT
from tests.support.testing import write_random_elmo


def change_option(before, after):
    options = Path("my_elmo/options.json").read_text().replace(before, after)
    Path("o300.json").write_text(options)
    Elmo("o300.json", "my_elmo/weights.hdf5")


def read(text, encoding="utf-8"):
    Path("my_text.txt").write_text(text, encoding=encoding)
    make_vocabulary("my_text.txt", "my_vocab", force=True)
    vocab = Vocabulary.from_files("my_vocab/vocabulary")
    loader = TruncatedBpttDataLoader(TruncatedBpttLmReader(128), "my_text.txt")
    loader.index_with(vocab)
    list(loader)


def run_out_of_memory():
    embedder = ElmoEmbedder("my_elmo")
    text = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB."
    with patch.object(embedder.elmo_bilm, "run", side_effect=torch.OutOfMemoryError(text)):
        embedder.embed_batch([["a"], ["b"]])


CAUSES = [
    lambda: change_option('"n_characters": 262', '"n_characters": 300'),
    lambda: change_option('"dim": 16', '"dim": 32'),
    lambda: Elmo("my_elmo")(torch.full((1, 3, 50), 5000)),
    lambda: read("Oh, yes, this is not tokenised, is it?\n"),
    lambda: read("а" * 30 + " b c d\n"),
    lambda: read("Caf\xe9 .\n", "latin-1"),
    lambda: read("One sentence .\nAnother one .\n"),
    lambda: LogUniformSampler(8, 8192),
    lambda: ElmoEmbedder("my_elmo").embed_file(io.BytesIO(), "layers.hdf5"),
    lambda: _jsonnet.evaluate_snippet("my_ner.jsonnet", "import 'elmo.libsonnet'"),
    run_out_of_memory,
]
"""What fails with, or logs, the messages."""
OF_ALLENNLP = ("'bidirectional_lm' is not", "Plugin ", "Serialization directory", "Experiment ")
"""The starts of messages of AllenNLP, whose last version is the one that is needed."""


def test_messages_are_printed_as_the_page_quotes_them(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    write_random_elmo("my_elmo")
    Path("layers.hdf5").touch()
    page = (REPOSITORY_ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
    printed = ""
    for cause in CAUSES:
        try:
            cause()
        except Exception as error:
            printed += f"error: {error}\n"
    printed += "\n".join(record.getMessage() for record in caplog.records)
    quotes = re.findall(r"(?:^> |\*\*)(`+) ?(.*?) ?\1", page, re.MULTILINE)
    for _, text in quotes:
        pattern = re.escape(text).replace(r"\.\.\.", ".*")
        assert text.startswith(OF_ALLENNLP) or re.search(pattern, printed), text
