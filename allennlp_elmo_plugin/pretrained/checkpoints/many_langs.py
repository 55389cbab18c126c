"""The files of a model of ELMoForManyLangs: state dicts, dictionaries and the training's config."""

import ntpath
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions, CharCnnOptions
from allennlp_elmo_plugin.files.json_file import escaped, read_json_object
from allennlp_elmo_plugin.files.tensors import read_tensors
from allennlp_elmo_plugin.pretrained import file_names as names
from allennlp_elmo_plugin.pretrained.checkpoints.layout import Layout, ModelFiles
from allennlp_elmo_plugin.pretrained.checkpoints.published_layout import Dataset, Part
from allennlp_elmo_plugin.pretrained.checkpoints.saved_variables import Variable, Weights, numbered

# Keys of the dictionary of characters besides code points. That of words has only the first.
UNKNOWN, PADDING, BEGIN_SENTENCE, END_SENTENCE = "<oov>", "<pad>", "<bos>", "<eos>"
# The marks around a word. Their names were swapped in training already.
FIRST, LAST = "<eow>", "<bow>"
_KEYS = (UNKNOWN, PADDING, BEGIN_SENTENCE, END_SENTENCE, FIRST, LAST)
# ELMoForManyLangs strips each line, so a key of white space is lost. It stands for this one.
_WHITE_SPACE = "\u3000"
# What no tensor shows, with the values of all published models. A model's file may be missing.
_USUAL = {
    "encoder.name": "elmo",
    "encoder.cell_clip": 3.0,
    "encoder.proj_clip": 3.0,
    "token_embedder.name": "cnn",
    "token_embedder.activation": "relu",
    "token_embedder.max_characters_per_token": 50,
}
_RULES: dict[str, Any] = {
    option.name: option.metadata.get("rule")
    for option in (*fields(BiLmOptions), *fields(CharCnnOptions))
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
    The options of a model of ELMoForManyLangs. `words` and `characters` give the rows of tables, of
    which one may be missing. A word is cut to `max_characters` code points and marks; `char_cnn`
    has the length of our rows of bytes.
    """

    words: dict[str, int] = field(default_factory=dict)
    characters: dict[str, int] = field(default_factory=dict)
    word_shape: tuple[int, ...] = (0, 0)  # of the table
    character_shape: tuple[int, ...] = (0, 0)
    max_characters: int = 50


class ManyLangs(Layout):
    """config.json, two state dicts of torch, and dictionaries."""

    ending = names.ENCODER_FILE
    read_only = (
        "a model of ELMoForManyLangs reads words as well as characters, so it can be used, but not "
        "trained further or written in another layout"
    )
    skips_empty_batches = False

    def find(self, folder: Path, for_training: bool) -> tuple[Path, Path] | None:
        if not names.first_file(folder, [names.ENCODER_FILE, names.TOKEN_EMBEDDER_FILE]):
            return None
        return folder / names.CONFIG_FILE, folder / names.ENCODER_FILE

    @contextmanager
    def open(self, files: ModelFiles) -> Iterator[tuple[ManyLangsOptions, Weights]]:
        yield _read_options(files.options.parent)

    def check(self, options: BiLmOptions, weights: Weights) -> None:
        """The sizes in the options are those of the weights."""

    def datasets(self, model: BiLm) -> list[Dataset]:
        table = []
        for parameter, tensor in model.state_dict().items():
            name = parameter
            for ours, theirs in _NAMES.items():
                name = name.replace(ours, theirs)
            table.append(Dataset(name, tuple(tensor.shape), [Part(parameter)]))
        return table


def _read_options(folder: Path) -> tuple[ManyLangsOptions, Weights]:
    """Read the options and dictionaries of a model, and open its weights."""
    variables = {
        name: Variable(str(path), tuple(tensor.shape), tensor.float)
        for path in (folder / names.TOKEN_EMBEDDER_FILE, folder / names.ENCODER_FILE)
        for name, tensor in read_tensors(path).items()
    }
    weights = Weights(str(folder), variables)
    size, architecture = weights.size, _read_architecture(folder)
    filters = [size(name) for name in numbered(variables, "convolutions.{}.weight")]
    max_characters = architecture["max_characters_per_token"]
    widest = max([len(BEGIN_SENTENCE) + 2, *(width for _, _, width in filters)])
    if max_characters < widest:
        raise ValueError(f'{folder}: "max_characters_per_token" must be at least {widest}')
    _, *word_shape = size("word_emb_layer.embedding.weight")
    _, *character_shape = size("char_emb_layer.embedding.weight")
    options = ManyLangsOptions(
        lstm_dim=size("forward_layer_0.state_projection.weight")[-1],
        projection_dim=size("projection.weight")[-2],
        n_layers=max(1, len(numbered(variables, "forward_layer_{}.input_linearity.weight"))),
        cell_clip=architecture["cell_clip"],
        proj_clip=architecture["proj_clip"],
        use_skip_connections=True,
        char_cnn=CharCnnOptions(
            filters=tuple((width, number) for number, _, width in filters),
            activation=architecture["activation"],
            embedding_dim=character_shape[1],
            n_highway=len(numbered(variables, "highways._layers.{}.weight")),
        ),
        project_lstm=True,
        project_characters=False,  # `ManyLangsEncoder` has its own projection.
        words=_read_dictionary(folder / names.WORDS_FILE, word_shape[0], [UNKNOWN]),
        characters=_read_dictionary(folder / names.CHARACTERS_FILE, character_shape[0], _KEYS),
        word_shape=tuple(word_shape),
        character_shape=tuple(character_shape),
        max_characters=max_characters,
    )
    return options, weights


def _read_architecture(folder: Path) -> dict[str, Any]:
    """Return the values for `_USUAL`, without sections, in the file that config.json names."""
    config = folder / names.CONFIG_FILE
    named = str(read_json_object(config).get("config_path"))
    names.refuse_other_computers(named, f'{config}: "config_path"')
    # It is a path on the author's machine.
    paths = [folder / name for name in (named, ntpath.basename(named))]
    path = next(filter(os.path.isfile, paths), None)
    values = read_json_object(path) if path else {}
    architecture: dict[str, Any] = {}
    for key, usual in _USUAL.items():
        section, name = key.split(".")
        keys = values.get(section)
        value = keys.get(name, usual) if isinstance(keys, dict) else usual
        value = value.lower() if isinstance(value, str) else value
        of_name = f'"{usual}", as in all published models', [usual].__contains__
        text, is_right = _RULES.get(name, of_name)
        if name.endswith("_clip") and not value:
            value = None
        elif not is_right(value):
            raise ValueError(f'{path}: "{key}" must be {text}, not {value!r:.60}')
        architecture[name] = value
    return architecture


def _read_dictionary(path: Path, n_rows: int, needed: Sequence[str]) -> dict[str, int]:
    """Return the ids of keys, for a table of so many rows; without one, no file is needed."""
    ids: dict[str, int] = {}
    if n_rows and path.exists() and not path.is_file():
        raise ValueError(f"{path}: a folder, a device or a pipe; give a file")
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
                f"{n_rows}, found '{escaped(line)}'"
            )
        if line:
            ids[keys[0] if keys else _WHITE_SPACE] = row
    for key in needed:
        if n_rows and key not in ids:
            raise ValueError(f"{path}: the key {key} is missing")
    return ids
