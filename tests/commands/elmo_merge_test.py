import io
import json
import os
import sys

import h5py
import numpy as np
import pytest
from allennlp.commands import main
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.commands import elmo_merge
from allennlp_elmo_plugin.commands.elmo_merge import merge
from allennlp_elmo_plugin.embedding import corpus_embedder
from allennlp_elmo_plugin.embedding.embedder import ElmoEmbedder
from allennlp_elmo_plugin.embedding.layers_file import read_summary
from tests.support.layers_files import assert_same_files, make_text
from tests.support.testing import write_random_elmo


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_random_elmo(tmp_path_factory.mktemp("elmo"), seed=4)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(corpus_embedder, "SHARD_LINES", 16)
    monkeypatch.setattr(elmo_merge, "SHARD_LINES", 16)


@pytest.fixture
def embed(files, tmp_path):
    """Embeds a shard; returns the path of the file."""

    def run(name, text, num_shards=1, shard_index=0, initial_state="settled", **arguments):
        embedder = ElmoEmbedder(*files, initial_state=initial_state)
        file = io.BytesIO(text.encode("utf-8"))
        arguments = {"output_format": "top", **arguments}
        path = str(tmp_path / name)
        embedder.embed_file(file, path, num_shards=num_shards, shard_index=shard_index, **arguments)
        return path

    return run


@pytest.mark.parametrize("n_lines", [100, 40, 1])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"include_sentence_indices": True}, {"forget_sentences": True, "compression": "gzip"}],
)
def test_shards_make_the_file_of_one_run(embed, tmp_path, n_lines, arguments):
    text = make_text(n_lines)
    whole = embed("whole", text, **arguments)
    parts = [embed(f"part{i}", text, 3, i, **arguments) for i in (2, 0, 1)]
    output = str(tmp_path / "o")
    summary = merge(output, parts)
    assert_same_files(output, whole)
    with h5py.File(output, "r") as file, h5py.File(whole, "r") as other:
        assert file["0"].compression == other["0"].compression
    expected = read_summary(whole)
    for each in (summary, read_summary(output)):
        assert {**each, "seconds": 0} == {**expected, "seconds": 0}


def test_each_shard_has_its_lines(embed):
    path = embed("part", make_text(100), 3, 1)
    with h5py.File(path, "r") as file:
        lines = sorted(int(key) for key in file if key != "sentence_to_index")
        assert lines == [*range(16, 32), *range(64, 80)]
        assert set(json.loads(file["sentence_to_index"][0]).values()) <= set(map(str, lines))


def test_sentence_keys(embed, tmp_path):
    text = "\n".join([*(f"{i} / {i % 7} /" for i in range(50)), "0 / 0 /"])
    parts = [embed(f"part{i}", text, 2, i, use_sentence_keys=True) for i in range(2)]
    merge(str(tmp_path / "o"), parts)
    whole = embed("whole", text, use_sentence_keys=True)
    with h5py.File(tmp_path / "o", "r") as file, h5py.File(whole, "r") as other:
        for i in range(50):
            sentence = f"{i} / {i % 7} /"
            np.testing.assert_allclose(file[sentence][...], other[sentence][...], atol=1e-6)
            assert file[sentence].attrs["sentence"] == sentence


def test_sentences_of_two_parts_that_hdf5_cannot_tell_apart(embed, tmp_path):
    text = "\n".join(["a/b", *map(str, range(20)), "a"])
    parts = [embed(f"part{i}", text, 2, i, use_sentence_keys=True) for i in range(2)]
    with pytest.raises(ConfigurationError, match="part1: .*begins with 'a' and '/'"):
        merge(str(tmp_path / "o"), parts)
    assert not (tmp_path / "o").exists() and not (tmp_path / "o.partial").exists()


class TestPartsThatDoNotFit:
    text = make_text(40)

    def check(self, tmp_path, parts, message):
        with pytest.raises(ConfigurationError, match=message):
            merge(str(tmp_path / "merged"), parts)
        assert not any(name.startswith("merged") for name in os.listdir(tmp_path))

    def test_missing_and_twice(self, embed, tmp_path):
        parts = [embed(f"part{i}", self.text, 3, i) for i in range(3)]
        self.check(tmp_path, parts[:1], "no part of shard 1, 2; .*--shard-index 1")
        self.check(tmp_path, [*parts, parts[1]], "both shard 1")

    @pytest.mark.parametrize(
        "text, arguments, message",
        [
            (text + "\nmore", {}, "the number of lines is 44 in the one and 43"),
            (text.replace("the", "The"), {}, "checksum"),
            (text, {"dtype": "float16"}, "dtype is 'float16' in the one and 'float32'"),
            (text, {"output_format": "all"}, "layers is 'all'"),
            (text, {"initial_state": "zero"}, "initial_state is 'zero'"),
            (text, {"use_sentence_keys": True}, "keys is"),
        ],
    )
    def test_other_text_or_options(self, embed, tmp_path, text, arguments, message):
        if arguments.get("use_sentence_keys"):
            text = "\n".join(line or "blank" for line in text.split("\n"))
        parts = [embed("part0", text, 2, 0, **arguments), embed("part1", self.text, 2, 1)]
        if "use_sentence_keys" in arguments:
            message = "checksum|keys is"
        self.check(tmp_path, parts[::-1], message)

    def test_another_number_of_shards(self, embed, tmp_path):
        parts = [embed("part0", self.text, 2, 0), embed("part1", self.text, 3, 1)]
        self.check(tmp_path, parts, "num_shards is 3 in the one and 2")

    def test_files_that_are_no_parts(self, embed, tmp_path):
        part = embed("part0", self.text, 2, 0)
        with h5py.File(tmp_path / "other", "w") as file:
            file["0"] = 1
        (tmp_path / "text").write_text("text", encoding="utf-8")
        (tmp_path / "part1.partial").touch()
        for name in ("other", "text"):
            self.check(tmp_path, [part, str(tmp_path / name)], f"{name} is no file that")
        self.check(tmp_path, [part, str(tmp_path / "part1")], "part1 is not complete; .*--resume")
        self.check(tmp_path, [part, str(tmp_path / "part2")], "there is no file .*part2")

    def test_nothing_is_read_of_other_files(self, embed, tmp_path):
        parts = [embed(f"part{i}", self.text, 2, i) for i in range(2)]
        other = embed("other", self.text)
        with h5py.File(parts[1], "r+") as file:
            del file["17"]
            file.create_dataset("17", (9, 16), "f4", external=[(other, 0, 576)])
        with pytest.raises(ValueError, match="part1: .*'17' has its data in other"):
            merge(str(tmp_path / "merged"), parts)
        assert not any(name.startswith("merged") for name in os.listdir(tmp_path))

    @pytest.mark.parametrize(
        "change, message",
        [
            (lambda values: [], "part1 is no file that"),
            (lambda values: {}, "part1 is no file that"),
            (lambda values: {**values, "shard_index": "1"}, "part1 is no file that"),
            (lambda values: {**values, "mappings": 1}, "part1 is no file that"),
            (lambda values: {**values, "tokens": None}, "part1 is no file that"),
            (lambda values: {**values, "num_shards": 10**15}, "num_shards is 10"),
        ],
    )
    def test_a_summary_that_is_wrong(self, embed, tmp_path, change, message):
        parts = [embed(f"part{i}", self.text, 2, i) for i in range(2)]
        with h5py.File(parts[1], "r+") as file:
            values = change(json.loads(file.attrs["allennlp_elmo_plugin"]))
            file.attrs["allennlp_elmo_plugin"] = json.dumps(values)
        self.check(tmp_path, parts, message)
        if "num_shards" in message:
            self.check(tmp_path, parts[1:], "no part of shard 0, 2, 3")

    def test_a_part_that_lost_something(self, embed, tmp_path):
        parts = [embed(f"part{i}", self.text, 2, i) for i in range(2)]
        with h5py.File(parts[1], "r+") as file:
            del file["17"]
        self.check(tmp_path, parts, "part1 is damaged: it has no '17'")

    def test_existing_output(self, embed, tmp_path):
        parts = [embed(f"part{i}", self.text, 2, i) for i in range(2)]
        with pytest.raises(ConfigurationError, match="part1 exists already"):
            merge(parts[1], parts)
        with pytest.raises(ConfigurationError, match="is the output and a part"):
            merge(parts[1], parts, force=True)


def test_command(embed, tmp_path, monkeypatch, capsys):
    text = make_text(40)
    parts = [embed(f"part{i}", text, 2, i) for i in range(2)]
    output = str(tmp_path / "o")
    monkeypatch.setattr(sys, "argv", ["allennlp", "elmo-merge", output, *parts])
    main()
    assert "43 sentences" in capsys.readouterr().out
    assert_same_files(output, embed("whole", text))
