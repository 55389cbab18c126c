"""
Every way in reads the same model from the same files: what options.json leaves out is completed by
the weights, and what contradicts them is refused in the same words.
"""

import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any, Callable, Dict, Tuple

import h5py
import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary

from allennlp_elmo_plugin import Elmo
from allennlp_elmo_plugin.bilm.options import BiLmOptions, flatten
from allennlp_elmo_plugin.commands.elmo_export import export
from allennlp_elmo_plugin.commands.elmo_import import import_model
from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.modules.configs import elmo_model
from tests.support.bilm_tf import REFERENCE
from tests.support.tensorflow_checkpoint_writer import write_checkpoint
from tests.support.testing import read_arrays, write_random_elmo

VOCABULARY = REFERENCE / "data" / "vocab.txt"
N_WORDS = 50


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Dict[str, Path]:
    """One model as it is published, in a checkpoint of TensorFlow, and as a run of training."""
    published, checkpoint, run = (
        tmp_path_factory.mktemp(name) for name in ("published", "checkpoint", "run")
    )
    _, weight_file = write_random_elmo(published, n_layers=2, n_highway=1)
    arrays = read_arrays(weight_file)
    write_checkpoint(
        checkpoint / "model.ckpt-3",
        {
            **{f"lm/{name}": values for name, values in arrays.items()},
            "lm/softmax/W": torch.ones(N_WORDS, 8).numpy(),
            "lm/softmax/b": torch.ones(N_WORDS).numpy(),
        },
    )
    shutil.copy(published / "options.json", checkpoint)
    import_model(checkpoint, run / "imported", VOCABULARY)
    with tarfile.open(run / "imported" / "model.tar.gz") as archive:
        archive.extractall(run)
    shutil.rmtree(run / "imported")
    (run / "weights.th").rename(run / "best.th")
    return {"published": published, "checkpoint": checkpoint, "run": run}


def elmo(folder: Path, work: Path) -> BiLmOptions:
    files = str(folder / "options.json"), str(folder / "weights.hdf5")
    return Elmo(*files, 1)._elmo_lstm.options  # type: ignore[union-attr, return-value]


def pretrained_file(folder: Path, work: Path) -> BiLmOptions:
    vocabulary = work / "vocabulary"
    vocabulary.mkdir(exist_ok=True)
    shutil.copy(VOCABULARY, vocabulary / "lm_tokens.txt")
    (vocabulary / "non_padded_namespaces.txt").write_text("lm_tokens\n")
    vocab = Vocabulary.from_files(str(vocabulary))
    return BidirectionalLanguageModel(vocab, pretrained_file=str(folder)).options


def imported(folder: Path, work: Path) -> BiLmOptions:
    import_model(folder, work / "imported", VOCABULARY)
    with tarfile.open(work / "imported" / "model.tar.gz") as archive:
        config: Any = archive.extractfile("config.json")
        options = json.load(config)["model"]["options"]
    return BiLmOptions.from_dict(options)


def exported(folder: Path, work: Path) -> BiLmOptions:
    export(str(folder), work / "exported")
    return BiLmOptions.from_file(work / "exported" / "options.json")


WAYS: Dict[str, Tuple[str, Callable[[Path, Path], BiLmOptions]]] = {
    "Elmo": ("published", elmo),
    "pretrained_file": ("checkpoint", pretrained_file),
    "elmo-import": ("published", imported),
    "elmo-export": ("run", exported),
}

FROM_WEIGHTS = (
    "bidirectional",
    "char_cnn.embedding",
    "char_cnn.filters",
    "char_cnn.n_highway",
    "lstm",
    "lstm.dim",
    "lstm.n_layers",
    "lstm.projection_dim",
)
# What no weights tell, and what it is where it is left out.
DEFAULTS = {
    "char_cnn.activation": "relu",
    "char_cnn.max_characters_per_token": 50,
    "char_cnn.n_characters": 262,
    "lstm.cell_clip": None,
    "lstm.proj_clip": None,
    "lstm.use_skip_connections": False,
}


@pytest.fixture
def changed(sources, tmp_path):
    """A copy of the files in which one of the options is changed; also the name of their file."""

    def change(kind: str, *keys: str, **values: Any) -> Tuple[Path, str]:
        folder = tmp_path / kind
        shutil.copytree(sources[kind], folder)
        if kind == "published":
            shutil.copy(VOCABULARY, folder)
        path = folder / ("config.json" if kind == "run" else "options.json")
        content = json.loads(path.read_text("utf-8"))
        options = content["model"]["options"] if kind == "run" else content
        if kind != "run":
            options["unroll_steps"] = 20  # with which bilm-tf's default is forward only
        if kind == "checkpoint":
            shutil.copy(VOCABULARY, folder / "vocab.txt")
        for key in keys:
            *sections, last = key.split(".")
            section = options
            for name in sections:
                section = section.get(name) or {}
            section.pop(last, None)
            if key in values:
                section[last] = values[key]
        path.write_text(json.dumps(content), encoding="utf-8")
        return folder, str(path) + (", model.options" if kind == "run" else "")

    return change


def model_of(options: BiLmOptions) -> Dict[str, Any]:
    values = options.to_dict()
    return flatten({key: values[key] for key in ("bidirectional", "char_cnn", "lstm")})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "keys",
    [
        (),
        ("lstm.n_layers", "char_cnn.n_highway"),
        *((key,) for key in (*FROM_WEIGHTS, *DEFAULTS)),
        (*FROM_WEIGHTS, *DEFAULTS),
    ],
    ids=" ".join,
)
def test_options_that_say_less(keys, way, sources, changed, tmp_path):
    """Without the keys, or with null."""
    kind, read = WAYS[way]
    expected = model_of(BiLmOptions.from_file(sources["published"] / "options.json"))
    lost = [key for key in DEFAULTS if key in keys or key.split(".")[0] in keys]
    expected.update({key: DEFAULTS[key] for key in lost})
    values = dict.fromkeys(keys) if way == "elmo-import" else {}
    folder, _ = changed(kind, *keys, **values)
    assert model_of(read(folder, tmp_path)) == expected


@pytest.mark.parametrize(
    "key, given, found",
    [
        ("bidirectional", False, True),
        ("char_cnn.embedding.dim", 5, 4),
        ("char_cnn.filters", [[1, 4], [2, 6]], [[1, 4], [2, 6], [3, 8]]),
        ("char_cnn.filters", [[1, 4], [3, 6], [3, 8]], [[1, 4], [2, 6], [3, 8]]),
        ("char_cnn.n_highway", 0, 1),
        ("char_cnn.n_highway", 2**31 - 1, 1),
        ("lstm.dim", 2**31 - 1, 16),
        ("lstm.n_layers", 1, 2),
        ("lstm.n_layers", 2**31 - 1, 2),
        ("lstm.projection_dim", 4, 8),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_contradictions(way, key, given, found, changed, tmp_path):
    kind, read = WAYS[way]
    folder, source = changed(kind, key, **{key: given})
    with pytest.raises(ConfigurationError) as error:
        read(folder, tmp_path)
    weights = {"published": "weights.hdf5", "checkpoint": "model.ckpt-3", "run": "best.th"}[kind]
    expected = (
        f'{source}: "{key}" is {json.dumps(given)}, but {folder / weights} has '
        f"{json.dumps(found)}; write {json.dumps(found)}, or use the weights that belong to these "
        "options"
    )
    assert re.sub("^pretrained_file: ", "", str(error.value)) == expected
    assert not (tmp_path / "imported").exists() and not (tmp_path / "exported").exists()


@pytest.mark.parametrize("way", WAYS)
def test_no_character_encoder(way, changed, tmp_path):
    kind, read = WAYS[way]
    folder, source = changed(kind, "char_cnn")
    message = f'{re.escape(source)}: "char_cnn" is missing, but .* has the weights of a character'
    with pytest.raises(ConfigurationError, match=message):
        read(folder, tmp_path)


def test_size_in_configurations(changed):
    """`elmo.libsonnet` finds the size of a representation as the modules do."""
    folder, _ = changed("published", "lstm.projection_dim", "bidirectional")
    assert elmo_model(str(folder))["dim"] == 16


def test_each_file_is_read_once_and_no_number_is_drawn(changed, tmp_path, monkeypatch):
    folder, _ = changed("published")
    opened = []
    once = h5py.File.__init__
    monkeypatch.setattr(
        h5py.File,
        "__init__",
        lambda file, name, *args, **kwargs: (
            opened.extend(["weights"] * isinstance(name, str)),
            once(file, name, *args, **kwargs),
        )[1],
    )
    parse = BiLmOptions.from_dict
    monkeypatch.setattr(
        BiLmOptions, "from_dict", lambda *args: (opened.append("options"), parse(*args))[1]
    )
    torch.manual_seed(0)
    state = torch.get_rng_state()
    elmo(folder, tmp_path)
    assert sorted(opened) == ["options", "weights"]
    assert torch.equal(torch.get_rng_state(), state)
