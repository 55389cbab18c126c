"""The files of ELMoForManyLangs: what may be missing or wrong, and what can't be done with them."""

import json
import os
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
    ):
        path = path.rename(place)
        change(folder / "config.json", config_path=named)
        assert np.abs(layers(folder) - expected).max() > 1e-2


def test_clips(tmp_path):
    folder = shutil.copytree(FIXTURES / "one_layer_clipped_zip", tmp_path / "clipped")
    arrays = [layers(folder)]
    for clips in ((0.5, 0), (None, 0.2), (0, None), (3, 3)):
        change(folder / ARCHITECTURE, encoder=dict(zip(("cell_clip", "proj_clip"), clips)))
        arrays.append(layers(folder))
    (folder / ARCHITECTURE).unlink()
    assert np.array_equal(layers(folder), arrays[-1])
    assert len({array.tobytes() for array in arrays}) == 5


def test_missing_files(folder):
    for name in ("word.dic", "encoder.pkl", "config.json"):
        hidden = (folder / name).rename(folder / "hidden")
        with pytest.raises(FileNotFoundError, match=f"No such file.*{name}"):
            ElmoEmbedder(str(folder))
        hidden.rename(folder / name)


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("char.dic", b"a\t5\tb\n", "line 1: expected a key, a tab and a row .* below 53"),
        ("char.dic", b"a\t3\n\t9\nb\t53\n", "line 3: expected a key, .* found 'b\\\\t53'"),
        ("char.dic", b"a\t-1\n", "line 1: expected"),
        ("char.dic", b"a\tx\n", "line 1: expected"),
        ("char.dic", b"\xff\t1\n", "char.dic: not UTF-8"),
        ("word.dic", b"<bos>\t1\n", "word.dic: the key <oov> is missing"),
        ("char.dic", b"<oov>\t1\n", "char.dic: the key <pad> is missing"),
    ],
)
def test_wrong_dictionaries(name, text, message, folder):
    (folder / name).write_bytes(text)
    with pytest.raises(ValueError, match=f"{folder}.*{message}"):
        ElmoEmbedder(str(folder))


@pytest.mark.parametrize("name", ["word.dic", "encoder.pkl"])
def test_devices_and_pipes_are_not_read(name, folder):
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    with pytest.raises(ValueError, match=f"{folder}/{name}: .*a device or a pipe"):
        ElmoEmbedder(str(folder))
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(ValueError, match=f"{folder}/{name}: .*a device or a pipe"):
        ElmoEmbedder(str(folder))


@pytest.mark.parametrize(
    "sections, message",
    [
        ({"encoder": {"name": "LSTM"}}, '"encoder.name" must be "elmo", as .* not .lstm'),
        ({"token_embedder": {"name": "lstm"}}, '"token_embedder.name" must be "cnn"'),
        ({"token_embedder": {"name": 5}}, '"token_embedder.name" must be "cnn"'),
        ({"token_embedder": {"activation": None}}, '"token_embedder.activation" must be'),
        ({"token_embedder": {"max_characters_per_token": 6}}, "must be at least 7"),
        ({"encoder": {"cell_clip": -1}}, '"encoder.cell_clip" must be a number above 0'),
    ],
)
def test_other_architectures_are_refused(sections, message, folder):
    change(folder / ARCHITECTURE, **sections)
    with pytest.raises(ValueError, match=f"{folder}.*{message}"):
        ElmoEmbedder(str(folder))


@pytest.mark.parametrize(
    "file, name, shape, message",
    [
        ("encoder", "backward_layer_1.state_projection.weight", None, "is missing"),
        ("encoder", "forward_layer_0.state_projection.weight", None, "missing|has shape"),
        ("encoder", "forward_layer_1.state_linearity.bias", (1,), r"\(1,\), but .* \(96,\)"),
        ("token_embedder", "projection.weight", (8, 45), r"\(8, 45\), but .* \(8, 46\)"),
        ("token_embedder", "convolutions.2.weight", (6, 6), r"has shape \(6, 6\)"),
        ("token_embedder", "projection.bias", (0,), r"\(0,\), but .* \(8,\)"),
        ("token_embedder", "convolutions.3.bias", (8, 2), "has shape"),
    ],
)
def test_wrong_tensors(file, name, shape, message, folder):
    tensors = torch.load(folder / f"{file}.pkl", map_location="cpu", weights_only=True)
    tensors.pop(name)
    if shape is not None:
        tensors[name] = torch.ones(shape)
    torch.save(tensors, folder / f"{file}.pkl")
    with pytest.raises(ValueError, match=f"{folder}.*{message}"):
        ElmoEmbedder(str(folder))


def test_errors_name_the_text(folder):
    (folder / "word.dic").write_bytes(b"x\t99\n")
    (folder / "meta.json").write_text('{"corpus": [{"language": "deu"}]}', encoding="utf-8")
    with pytest.raises(ValueError, match="found 'x.*99' .trained on /users/someone/raw/xx.raw, de"):
        ElmoEmbedder(str(folder))


def test_is_read_only(folder, tmp_path):
    for use in (read_pretrained, export, import_model):
        with pytest.raises(ValueError, match=f"^{folder}: a model of ELMoForManyLangs .* not tr"):
            use(str(folder), *[tmp_path / "made"] * (use is not read_pretrained))
