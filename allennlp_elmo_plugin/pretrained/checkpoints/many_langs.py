"""The files of a model of ELMoForManyLangs: state dicts, dictionaries and the training's config."""

import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import torch

from allennlp_elmo_plugin.bilm.options import BiLmOptions, CharCnnOptions
from allennlp_elmo_plugin.files.json_file import read_json_object, shown
from allennlp_elmo_plugin.files.tensors import read_tensors
from allennlp_elmo_plugin.pretrained import file_names as files
from allennlp_elmo_plugin.pretrained.checkpoints.published_layout import Dataset, Part
from allennlp_elmo_plugin.pretrained.checkpoints.saved_variables import Variable, Weights, numbered

# Keys of the dictionary of characters besides code points; that of words has the first, too.
UNKNOWN, PADDING, BEGIN_SENTENCE, END_SENTENCE = "<oov>", "<pad>", "<bos>", "<eos>"
# The marks around a word, whose names were swapped in training, too.
FIRST, LAST = "<eow>", "<bow>"
_KEYS = (UNKNOWN, PADDING, BEGIN_SENTENCE, END_SENTENCE, FIRST, LAST)
# ELMoForManyLangs strips a line of white space, and takes a key that is lost for this one.
_WHITE_SPACE = "\u3000"
# What tensors can't tell, and the values of all published models, whose file may be missing.
_USUAL: dict[str, dict[str, Any]] = {
    "encoder": {"name": "elmo", "cell_clip": 3.0, "proj_clip": 3.0},
    "token_embedder": {"name": "cnn", "activation": "relu", "max_characters_per_token": 50},
}
_RULES = {
    each.name: each.metadata.get("rule")
    for kind in (BiLmOptions, CharCnnOptions)
    for each in fields(kind)
}
# The beginnings of names of parameters, in our model and theirs.
_NAMES = {
    "_elmo_lstm.": "",
    "_token_embedder._char_embedding_weights": "char_emb_layer.embedding.weight",
    "_token_embedder._word_embedding_weights": "word_emb_layer.embedding.weight",
    "_token_embedder.char_conv_": "convolutions.",
    "_token_embedder._": "",
}


@dataclass(frozen=True)
class ManyLangsOptions(BiLmOptions):
    """
    The options of a model of ELMoForManyLangs: ids of words and characters are rows of tables, of
    which one may be missing. Of a word, `max_characters` code points and marks are read; `char_cnn`
    has the length of our rows of bytes.
    """

    words: dict[str, int] = field(default_factory=dict)
    characters: dict[str, int] = field(default_factory=dict)
    word_shape: tuple[int, ...] = (0, 0)  # of the table
    character_shape: tuple[int, ...] = (0, 0)
    max_characters: int = 50


def open_many_langs(folder: Path) -> tuple[ManyLangsOptions, Weights]:
    """Read the options and dictionaries of a model, and open its weights."""
    variables: dict[str, Variable] = {}
    for path in (folder / files.TOKEN_EMBEDDER_FILE, folder / files.ENCODER_FILE):
        for name, tensor in read_tensors(path).items():
            if not tensor.numel():
                raise ValueError(f"{path}: the tensor '{shown(name, 200)}' has no numbers")
            variables[name] = Variable(str(path), tuple(tensor.shape), tensor.float)

    def shape(name: str, n_dimensions: int = 2) -> tuple[int, ...]:
        found = variables[name].shape if name in variables else (0,) * n_dimensions
        if len(found) != n_dimensions:
            raise ValueError(f"{variables[name].file}: the tensor '{name}' has the shape {found}")
        return found

    given = _read_architecture(folder)
    shapes = [shape(name, 3) for name in numbered(variables, "convolutions.{}.weight")]
    widest = max([len(BEGIN_SENTENCE) + 2, *(width for _, _, width in shapes)])
    if given["max_characters_per_token"] < widest:
        raise ValueError(f'{folder}: "max_characters_per_token" must be at least {widest}')
    word_shape = shape("word_emb_layer.embedding.weight")
    character_shape = shape("char_emb_layer.embedding.weight")
    options = ManyLangsOptions(
        lstm_dim=shape("forward_layer_0.state_projection.weight")[1],
        projection_dim=shape("projection.weight")[0],
        n_layers=max(1, len(numbered(variables, "forward_layer_{}.input_linearity.weight"))),
        cell_clip=given["cell_clip"],
        proj_clip=given["proj_clip"],
        use_skip_connections=True,
        char_cnn=CharCnnOptions(
            filters=tuple((width, number) for number, _, width in shapes),
            activation=given["activation"],
            embedding_dim=character_shape[1],
            n_highway=len(numbered(variables, "highways._layers.{}.weight")),
        ),
        project_lstm=True,
        project_characters=False,  # `ManyLangsEncoder` has another projection.
        words=_read_dictionary(folder / files.WORDS_FILE, word_shape[0], (UNKNOWN,)),
        characters=_read_dictionary(folder / files.CHARACTERS_FILE, character_shape[0], _KEYS),
        word_shape=word_shape,
        character_shape=character_shape,
        max_characters=given["max_characters_per_token"],
    )
    return options, Weights(str(folder), variables)


def many_langs_datasets(parameters: Mapping[str, torch.Tensor]) -> list[Dataset]:
    """Return the tensors in the files of a model, by those of an `ElmoBiLm` of its options."""
    table = []
    for parameter, tensor in parameters.items():
        name = parameter
        for ours, theirs in _NAMES.items():
            name = name.replace(ours, theirs)
        table.append(Dataset(name, tuple(tensor.shape), [Part(parameter)]))
    return table


def _read_architecture(folder: Path) -> dict[str, Any]:
    """Return what `_USUAL` has, with the values in the file that config.json names."""
    path = folder / files.CONFIG_FILE
    values: dict[str, Any] = {}
    named = str(read_json_object(path).get("config_path"))  # a path on the author's machine
    for name in (named, posixpath.basename(named)):
        if not values and os.path.isfile(folder / name):
            path = folder / name
            values = read_json_object(path)
    found: dict[str, Any] = {}
    for section, usual in _USUAL.items():
        own = values.get(section)
        for key, default in usual.items():
            value = own.get(key, default) if isinstance(own, dict) else default
            value = value.lower() if isinstance(value, str) else value
            of_name = f'"{default}", as in all published models', partial(eq, default)
            text, is_right = _RULES.get(key) or of_name
            if key.endswith("_clip") and not value:
                value = None
            elif not is_right(value):
                raise ValueError(f'{path}: "{section}.{key}" must be {text}, not {value!r:.60}')
            found[key] = value
    return found


def _read_dictionary(path: Path, n_rows: int, needed: tuple[str, ...]) -> dict[str, int]:
    """Return the ids of keys, for a table of so many rows; without one, no file is needed."""
    ids: dict[str, int] = {}
    try:
        lines = path.read_bytes().decode("utf-8").split("\n") if n_rows else []
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error})") from None
    for number, line in enumerate(map(str.strip, lines), 1):
        *keys, value = line.split("\t")
        row = int(value) if value.isdecimal() and len(value) < 10 else n_rows
        if line and (len(keys) > 1 or row >= n_rows):
            raise ValueError(
                f"{path}, line {number}: expected a key, a tab and a row of its table, below "
                f"{n_rows}, found '{shown(line)}'"
            )
        if line:
            ids[keys[0] if keys else _WHITE_SPACE] = row
    for key in needed:
        if n_rows and key not in ids:
            raise ValueError(f"{path}: the key {key} is missing")
    return ids
