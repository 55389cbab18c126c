import io
import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from allennlp.commands import main
from allennlp.common import logging as common_logging

from allennlp_elmo_plugin.embedding import corpus_embedder
from allennlp_elmo_plugin.embedding.embedder import DEFAULT_INITIAL_STATE, ElmoEmbedder
from tests.support.testing import refused, write_random_elmo

SENTENCES = ["Alice saw the old mill .", "Yes .", "", "naïve ﬁsh , 1 / 2"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_random_elmo(tmp_path_factory.mktemp("elmo"), seed=5)


@pytest.fixture
def elmo(files, tmp_path, monkeypatch):
    """Runs the command through AllenNLP's main program; returns the open output."""
    monkeypatch.setattr(common_logging, "FILE_FRIENDLY_LOGGING", False)

    def run(*arguments: str, text: str = "\n".join(SENTENCES) + "\n") -> h5py.File:
        (tmp_path / "input.txt").write_text(text, encoding="utf-8")
        output = str(tmp_path / "output.hdf5")
        run_main(
            str(tmp_path / "input.txt"),
            output,
            "--options-file",
            files[0],
            "--weight-file",
            files[1],
            *arguments,
        )
        return h5py.File(output, "r")

    def run_main(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["allennlp", "elmo", *arguments])
        main()

    run.main = run_main
    return run


def expected(files, batch_size=64, initial_state=DEFAULT_INITIAL_STATE):
    sentences = [sentence.split() for sentence in SENTENCES]
    embedder = ElmoEmbedder(*files, initial_state=initial_state)
    return list(embedder.embed_sentences(sentences, batch_size))


@pytest.mark.parametrize(
    "flag, select",
    [
        ("--all", lambda layers: layers),
        ("--top", lambda layers: layers[-1]),
        ("--average", lambda layers: layers.mean(axis=0)),
    ],
)
@pytest.mark.parametrize("initial_state", ["carried", "settled"])
def test_layers(elmo, files, flag, select, initial_state):
    with elmo(flag, "--batch-size", "3", "--initial-state", initial_state) as file:
        assert set(file) == {"0", "1", "2", "3", "sentence_to_index"}
        for i, layers in enumerate(expected(files, 3, initial_state)):
            assert file[str(i)].dtype == np.float32
            np.testing.assert_allclose(file[str(i)][...], select(layers), atol=1e-6)
        mapping = {sentence: str(i) for i, sentence in enumerate(SENTENCES)}
        assert json.loads(file["sentence_to_index"][0]) == mapping


@pytest.mark.parametrize(
    "flags, message",
    [
        ([], "one of the arguments --all --top --average is required"),
        (["--all", "--top"], "argument --top: not allowed with argument --all"),
        (["--top", "--average"], "argument --average: not allowed with argument --top"),
    ],
)
def test_exactly_one_kind_of_layers(flags, message, capsys):
    assert message in refused(capsys, "elmo", "in", "out", *flags)


def test_forget_sentences(elmo):
    with elmo("--top", "--forget-sentences") as file:
        assert set(file) == {"0", "1", "2", "3"}


def test_include_sentence_indices(elmo):
    with elmo("--top", "--include-sentence-indices") as file:
        assert file["sentence_indices"][0] == file["sentence_to_index"][0]


def test_use_sentence_keys(elmo):
    with elmo("--top", "--use-sentence-keys", text="a b\nc\n") as file:
        assert set(file) == {"a b", "c"}


def test_vocabulary_changes_nothing_but_speed(elmo, files, tmp_path, monkeypatch):
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    with elmo("--all", "--vocab-path", str(tmp_path / "words.txt")) as file:
        for i, layers in enumerate(expected(files)):
            np.testing.assert_allclose(file[str(i)][...], layers, atol=1e-5)


def test_vocabulary_of_more_than_words(tmp_path, capsys):
    (tmp_path / "words.txt").write_text("the\nof 17\n", encoding="utf-8")
    paths = [tmp_path / "in", tmp_path / "out"]
    message = refused(capsys, "elmo", *paths, "--all", "--vocab-path", tmp_path / "words.txt")
    assert "words.txt, line 2: 'of 17'" in message


def test_shards_share_an_output(elmo, files, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(corpus_embedder, "PART_WORDS", 2)
    (tmp_path / "i").write_text("\n".join(SENTENCES), encoding="utf-8")
    command = [str(tmp_path / "i"), str(tmp_path / "o"), "--all", "--options-file", files[0]]
    elmo.main(*command, "--num-shards", "2", "--shard-index", "1")
    assert "o.parts lacks 2 parts of other shards" in capsys.readouterr().out
    elmo.main(*command, "--num-shards", "2", "--shard-index", "0")
    assert "Written to" in capsys.readouterr().out
    with h5py.File(tmp_path / "o", "r") as file:
        for i, layers in enumerate(expected(files)):
            np.testing.assert_allclose(file[str(i)][...], layers, atol=1e-6)


def test_existing_output_needs_force(elmo, tmp_path, capsys):
    elmo("--top").close()
    capsys.readouterr()
    output = tmp_path / "output.hdf5"
    assert "--force" in refused(capsys, "elmo", tmp_path / "input.txt", output, "--all")
    with elmo("--all", "--force") as file:
        assert file["0"].ndim == 3


def test_file_friendly_logging(elmo):
    elmo("--top", "--file-friendly-logging").close()
    assert common_logging.FILE_FRIENDLY_LOGGING


def test_progress_of_a_pipe(elmo, files, tmp_path, monkeypatch, capsys):
    text = b"a b c d e f\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    elmo.main("-", str(tmp_path / "o"), "--top", "--options-file", files[0])
    printed = capsys.readouterr()
    assert "embedding: 12.0B [" in printed.err and printed.out.startswith("1 sentence, 6 words in ")


def test_include_package(elmo, tmp_path, monkeypatch):
    (tmp_path / "user_package.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    elmo("--top", "--include-package", "user_package").close()
    assert "user_package" in sys.modules


class TestBadInput:
    """Each is found before anything is written."""

    def check(self, capsys, tmp_path, message, *arguments):
        before = sorted(path.name for path in tmp_path.iterdir())
        assert message in refused(capsys, "elmo", *arguments)
        assert sorted(path.name for path in tmp_path.iterdir()) == before

    def test_missing_input(self, files, tmp_path, capsys):
        output = str(tmp_path / "o")
        self.check(capsys, tmp_path, "missing.txt", str(tmp_path / "missing.txt"), output, "--top")

    def test_input_is_output(self, tmp_path, capsys):
        path = tmp_path / "i"
        path.write_text("a\n", encoding="utf-8")
        self.check(capsys, tmp_path, "same file", str(path), str(path), "--top", "--force")
        assert path.read_text(encoding="utf-8") == "a\n"

    def test_output_is_a_file_of_the_model(self, files, tmp_path, capsys):
        (tmp_path / "i").write_text("a\n", encoding="utf-8")
        (tmp_path / "link").symlink_to(files[1])
        folder = os.path.dirname(files[0])
        for options, output in [
            (files[0], files[1]),
            (files[0], files[0]),
            (files[0], tmp_path / "link"),
            (folder, os.path.join(folder, "weights.hdf5")),
        ]:
            with open(output, "rb") as file:
                before = file.read()
            model = ["--options-file", options, "--weight-file", files[1]]
            paths = [tmp_path / "i", output, "--top", "--force"]
            self.check(capsys, tmp_path, "same file", *paths, *model)
            with open(output, "rb") as file:
                assert file.read() == before

    def test_missing_model(self, files, tmp_path, capsys):
        (tmp_path / "i").write_text("a\n", encoding="utf-8")
        paths = [str(tmp_path / "i"), str(tmp_path / "o"), "--top"]
        wrong = str(tmp_path / "missing.json")
        self.check(capsys, tmp_path, "missing.json", *paths, "--options-file", wrong)
        wrong = str(tmp_path / "missing.hdf5")
        self.check(
            capsys,
            tmp_path,
            "missing.hdf5",
            *paths,
            "--options-file",
            files[0],
            "--weight-file",
            wrong,
        )

    def test_weights_that_are_not_hdf5(self, files, tmp_path, capsys):
        (tmp_path / "i").write_text("a\n", encoding="utf-8")
        (tmp_path / "not.hdf5").write_text("text", encoding="utf-8")
        paths = [str(tmp_path / "i"), str(tmp_path / "o"), "--top", "--options-file", files[0]]
        self.check(
            capsys, tmp_path, "not.hdf5", *paths, "--weight-file", str(tmp_path / "not.hdf5")
        )


def test_in_a_process_of_its_own_whatever_the_locale(files, tmp_path):
    (tmp_path / "input.txt").write_text("naïve ﬁsh\n", encoding="utf-8")
    command = [sys.executable, "-m", "allennlp", "elmo", "input.txt", "output.hdf5", "--top"]
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    (tmp_path / ".allennlp_plugins").write_text("allennlp_elmo_plugin\n", encoding="utf-8")
    arguments = ["--options-file", files[0], "--weight-file", files[1]]

    def run():
        return subprocess.run(
            command + arguments, cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    result = run()
    assert result.returncode == 0, result.stderr
    with h5py.File(tmp_path / "output.hdf5", "r") as file:
        assert json.loads(file["sentence_to_index"][0]) == {"naïve ﬁsh": "0"}
    # The second time the output is in the way.
    result = run()
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith("error: output.hdf5 exists already")
