"""The files of ELMoForManyLangs: what may be missing or wrong, and what can't be done with them."""

import json
import os
import re
import shutil

import numpy as np
import pytest
import torch

from allennlp_elmo_plugin import ElmoEmbedder
from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.commands.elmo_import import import_model
from allennlp_elmo_plugin.pretrained.language_model import read_pretrained
from tests.support.bilm_tf import REFERENCE

FIXTURES = REFERENCE.with_name("elmo_for_many_langs")
SENTENCE = ["Der", "Garten", "x" * 60, "ß"]
ARCHITECTURE = "cnn_50_100_512_4096_sample.json"


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FIXTURES / "latin_gpu_pickles", tmp_path / "173")


def change(path, **sections):
    values = json.loads(path.read_text(encoding="utf-8"))
    for name, section in sections.items():
        values[name] = {**values[name], **section} if isinstance(section, dict) else section
    path.write_text(json.dumps(values), encoding="utf-8")


def layers(folder):
    return ElmoEmbedder(str(folder)).embed_sentence(SENTENCE)


def test_where_the_architecture_is(folder, tmp_path):
    """What is in no tensor has its usual values if the file is missing."""
    expected = layers(folder)
    (folder / "configs").mkdir()
    path = folder / "configs" / "own.json"
    (folder / ARCHITECTURE).rename(path)
    assert np.array_equal(layers(folder), expected)
    change(path, token_embedder={"activation": "TanH"})
    assert np.array_equal(layers(folder), expected)
    for place, named in (
        (path, "configs/own.json"),
        (path, str(path)),
        (folder / "own.json", "/Users/someone/configs/own.json"),
        (folder / "own.json", "../configs/own.json"),
        (folder / "own.json", "C:\\someone\\own.json"),
    ):
        path = path.rename(place)
        change(folder / "config.json", config_path=named)
        assert np.abs(layers(folder) - expected).max() > 1e-2
    change(folder / "config.json", config_path="\\\\server\\own.json")
    with pytest.raises(ValueError, match='"config_path" is .*, on another computer'):
        layers(folder)


def test_clips(tmp_path):
    folder = shutil.copytree(FIXTURES / "one_layer_clipped_zip", tmp_path / "clipped")
    arrays = [layers(folder)]
    for clips in ((0.5, 0), (None, 0.2), (0, None), (3, 3)):
        change(folder / ARCHITECTURE, encoder=dict(zip(("cell_clip", "proj_clip"), clips)))
        arrays.append(layers(folder))
    (folder / ARCHITECTURE).unlink()
    assert np.array_equal(layers(folder), arrays[-1])
    assert len({array.tobytes() for array in arrays}) == 5


def write(name, text):
    return lambda folder: (folder / name).write_bytes(text)


def architecture(**sections):
    return lambda folder: change(folder / ARCHITECTURE, **sections)


def tensor(file, name, *shape):
    """Change the shape of a tensor, or remove it."""

    def write_tensors(folder):
        path = folder / f"{file}.pkl"
        tensors = torch.load(path, map_location="cpu", weights_only=True)
        tensors.pop(name)
        torch.save({**tensors, **({name: torch.ones(shape)} if shape else {})}, path)

    return write_tensors


def pipe(name):
    def make_pipe(folder):
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return make_pipe


BIAS = "forward_layer_1.state_linearity.bias"
WRONG = [
    (lambda folder: (folder / "word.dic").unlink(), "word.dic"),
    (lambda folder: (folder / "encoder.pkl").unlink(), "encoder.pkl"),
    (lambda folder: (folder / "config.json").unlink(), "config.json"),
    (write("char.dic", b"a\t5\tb\n"), "line 1: expected a key, a tab and a row .* below 53"),
    (write("char.dic", b"a\t3\n\t9\nb\t53\n"), "line 3: expected a key, .* found 'b\\\\t53'"),
    (write("char.dic", b"\xff\t1\n"), "char.dic: not UTF-8"),
    (write("word.dic", b"<bos>\t1\n"), "word.dic: the key <oov> is missing"),
    (write("char.dic", b"<oov>\t1\n"), "char.dic: the key <pad> is missing"),
    (pipe("word.dic"), "word.dic: .*a device or a pipe"),
    (pipe("encoder.pkl"), "encoder.pkl: .*a device or a pipe"),
    (architecture(encoder={"name": "LSTM"}), '"encoder.name" must be "elmo", as .* not .lstm'),
    (architecture(token_embedder={"name": 5}), '"token_embedder.name" must be "cnn"'),
    (architecture(token_embedder={"activation": None}), '"token_embedder.activation" must be'),
    (architecture(token_embedder={"max_characters_per_token": 6}), "must be at least 7"),
    (architecture(encoder={"cell_clip": -1}), '"encoder.cell_clip" must be a number above 0'),
    (tensor("encoder", "backward_layer_1.state_projection.weight"), "is missing"),
    (tensor("encoder", "forward_layer_0.state_projection.weight"), "missing|has shape"),
    (tensor("encoder", BIAS, 1), r"has shape \(1,\), but .* \(96,\)"),
    (tensor("token_embedder", "projection.weight", 8, 45), r"\(8, 45\), but .* \(8, 46\)"),
    (tensor("token_embedder", "projection.bias", 0), r"\(0,\), but .* \(8,\)"),
]


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("make_wrong, message", WRONG)
def test_what_is_wrong_is_named(make_wrong, message, folder):
    make_wrong(folder)
    with pytest.raises(
        (ValueError, FileNotFoundError), match=f"{re.escape(str(folder))}.*{message}"
    ):
        ElmoEmbedder(str(folder))


def test_errors_name_the_text(folder):
    (folder / "word.dic").write_bytes(b"x\t99\n")
    (folder / "meta.json").write_text('{"corpus": [{"language": "deu"}]}', encoding="utf-8")
    with pytest.raises(ValueError, match="found 'x.*99' .trained on /users/someone/raw/xx.raw, de"):
        ElmoEmbedder(str(folder))


def test_is_read_only(folder, tmp_path):
    for use in (read_pretrained, export, import_model):
        with pytest.raises(
            ValueError, match=f"^{re.escape(str(folder))}: a model of ELMoForManyLangs .* not tr"
        ):
            use(str(folder), *[tmp_path / "made"] * (use is not read_pretrained))
