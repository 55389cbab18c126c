"""
Read pretrained language models, to train them further or to export them: archives and folders of
training runs, exported models, and checkpoints of bilm-tf.
"""

import logging
import os
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, List, NamedTuple, Optional, Union

import torch

from allennlp_elmo_plugin.bilm.checkpoints.published_layout import (
    Dataset,
    Part,
    datasets,
    softmax_datasets,
)
from allennlp_elmo_plugin.bilm.checkpoints.saved_variables import (
    SavedVariables,
    check_tied,
    find_variables,
    flatten,
    load,
    make_language_model,
)
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.bilm.vocabulary import read_vocabulary_file
from allennlp_elmo_plugin.data.vocabulary import VOCABULARY_FOLDER, read_vocabulary_folder
from allennlp_elmo_plugin.files.model_file_names import (
    VOCABULARY_FILE,
    find_vocabulary_file,
    is_training_run,
)
from allennlp_elmo_plugin.modules.elmo_files import find_model
from allennlp_elmo_plugin.modules.language_model_archive import (
    open_training_run,
    read_folder_options,
)

logger = logging.getLogger(__name__)

PathLike = Union[str, "os.PathLike[str]"]

# The parameters with one row for each word.
_TABLES = ("bilm._token_embedder.weight", "softmax.weight", "softmax.bias")
# What fine-tuning can't change.
_FIXED_OPTIONS = ("bidirectional", "char_cnn", "lstm", "share_embedding_softmax")


class PretrainedLanguageModel(NamedTuple):
    """
    A pretrained language model.

    # Parameters

    source : `str`
        Its path or address.
    options : `BiLmOptions`
    words : `List[str]`, optional
        Its vocabulary; `None` if it has no table of words.
    bilm : `BiLm`
    softmax : `Softmax`, optional
        Its output layer; `None` if there is none in the files.
    """

    source: str
    options: BiLmOptions
    words: Optional[List[str]]
    bilm: BiLm
    softmax: Optional[Softmax]

    def modules(self) -> torch.nn.ModuleDict:
        """
        Return the parts of a `bidirectional_lm` by their names in it, with a new output layer if
        there is none in the files.
        """
        softmax, options = self.softmax, self.options
        if softmax is None:
            shared: Any = self.bilm.token_layer.weight if options.share_embedding_softmax else None
            softmax = Softmax(len(self.words or []), options.projection_dim, weight=shared)
        return torch.nn.ModuleDict({"bilm": self.bilm, "softmax": softmax})

    def check_options(self, options: BiLmOptions, source: str) -> None:
        """
        Check that the training of a model with these options can start from this one.

        # Raises

        `ValueError` that names `source` and the key in which they differ.
        """
        given, own = (
            flatten({key: values.get(key) for key in _FIXED_OPTIONS})
            for values in (options.to_dict(), self.options.to_dict())
        )
        for key in sorted({*given, *own}):
            if given.get(key) != own.get(key):
                raise ValueError(
                    f'{source}: "{key}" is {given.get(key)!r}, but {own.get(key)!r} in '
                    f"{self.source}, from which training starts; leave the options out to use "
                    "those"
                )

    def copy_to(self, model: torch.nn.Module, words: List[str]) -> None:
        """
        Copy the parameters to a `bidirectional_lm`. If its vocabulary is another one, words of both
        get their rows in tables of words, and other rows stay as they are.

        # Parameters

        model : `torch.nn.Module`
            Of the same options, except for the number of words.
        words : `List[str]`
            Its vocabulary.
        """
        parts = {"bilm": self.bilm, **({} if self.softmax is None else {"softmax": self.softmax})}
        own_words = self.words or []
        ids = {word: index for index, word in enumerate(own_words)}
        pairs = [(index, ids[word]) for index, word in enumerate(words) if word in ids]
        state = model.state_dict()
        for name, values in torch.nn.ModuleDict(parts).state_dict().items():
            if name in _TABLES and own_words != words:
                rows, own_rows = torch.tensor(pairs).unbind(1)  # (n_shared,) each
                state[name][rows] = values[own_rows]  # (n_shared, ...)
            else:
                state[name].copy_(values)
        if self.softmax is None:
            what = f"all {len(words)} rows of it start fresh" if self.words is None else "it is new"
            logger.warning(
                "%s has no softmax: %s. The perplexity means nothing before the model is trained.",
                self.source,
                what,
            )
        if self.words == words:
            logger.info("The vocabulary is that of %s: all words keep their rows", self.source)
        elif self.words is not None:
            logger.warning(
                "The vocabulary is not that of %s (%d words): %d of %d words are in it and keep "
                "their rows, %d start fresh.",
                self.source,
                len(self.words),
                len(pairs),
                len(words),
                len(words) - len(pairs),
            )


def read_pretrained(name: str) -> PretrainedLanguageModel:
    """
    Read a language model from files that anybody may have written, as data alone.

    # Parameters

    name : `str`
        A folder, an archive, a short name or an address; see `find_model`.

    # Raises

    `FileNotFoundError` or `ValueError` that names the file and what is wrong with it,
    `ConfigurationError` for what can't be downloaded.
    """
    with find_model(name) as folder:
        return read_model(folder, name)


def read_model(folder: Path, source: str) -> PretrainedLanguageModel:
    """
    Read the language model in a folder of any kind. Raises what `read_pretrained` raises.

    # Parameters

    folder : `Path`
        What `find_model` yields.
    source : `str`
        Its name in errors and messages.
    """
    if is_training_run(folder):
        return _read_training_run(folder, source)
    with find_variables(folder) as variables:
        return read_folder(folder, variables, source=source)


def _read_training_run(folder: Path, source: str) -> PretrainedLanguageModel:
    options, variables = open_training_run(folder, source)
    words = read_vocabulary_folder(folder / VOCABULARY_FOLDER, f"{source}/{VOCABULARY_FOLDER}")
    if options.n_tokens_vocab not in (None, len(words)):
        raise ValueError(
            f'{source}: "n_tokens_vocab" of the options is {options.n_tokens_vocab}, but the '
            f"vocabulary has {len(words)} words"
        )
    options = replace(options, n_tokens_vocab=len(words))
    is_tied = options.share_embedding_softmax
    weight, bias = softmax_datasets(len(words), options.projection_dim)
    variables.check_size(chain(datasets(options), [bias] if is_tied else [weight, bias]))
    bilm = BiLm(options, device="meta")
    shared: Any = bilm.token_layer.weight if is_tied else None
    softmax = Softmax(len(words), options.projection_dim, weight=shared, device="meta")
    model = torch.nn.ModuleDict({"bilm": bilm, "softmax": softmax})
    # The variables are the parameters, under the same names.
    table = {
        name: Dataset(name, tuple(parameter.shape), [Part(name)])
        for name, parameter in model.state_dict().items()
    }
    variables.check(table.values())
    # A shared table is read by its first name.
    load(model, [table[name] for name, _ in model.named_parameters()], variables)
    if shared is not None:
        check_tied(softmax.weight.detach(), variables, "softmax.weight")
    return PretrainedLanguageModel(source, options, words, bilm, softmax)


def read_folder(
    folder: Path,
    variables: SavedVariables,
    vocab_file: Optional[PathLike] = None,
    source: str = "",
) -> PretrainedLanguageModel:
    """
    Read the language model of a folder with options, weights and a vocabulary. Raises what
    `read_pretrained` raises.

    # Parameters

    folder : `Path`
        The folder, or the prefix of a checkpoint's files in it.
    variables : `SavedVariables`
        Those that `find_variables` found there.
    vocab_file : `str`, optional (default = the one in the folder)
        The vocabulary; for a model without a table of words, any.
    source : `str`, optional (default = the folder)
        The name of the model in messages.
    """
    options = read_folder_options(folder, variables)
    if not folder.is_dir():
        folder = folder.parent
    # bilm-tf's rule for projections, as options.json can't express others.
    options = replace(options, project_lstm=None, project_characters=None)
    words = None
    if variables.n_words is not None or vocab_file is not None:
        words = _read_words(folder, variables, vocab_file)
        options = replace(options, n_tokens_vocab=len(words))
    bilm, softmax = make_language_model(options, variables)
    return PretrainedLanguageModel(source or str(folder), options, words, bilm, softmax)


def _read_words(
    folder: Path, variables: SavedVariables, vocab_file: Optional[PathLike]
) -> List[str]:
    path = find_vocabulary_file(folder) if vocab_file is None else Path(vocab_file)
    if path is None:
        raise FileNotFoundError(
            f"{folder}: has a model of {variables.n_words} words, but not the vocabulary that says "
            f"which; put it there as {VOCABULARY_FILE}, one word a line"
        )
    words = read_vocabulary_file(path)
    if variables.n_words not in (None, len(words)):
        raise ValueError(
            f"{path}: has {len(words)} words, but the model in {folder} has {variables.n_words}; "
            "give the vocabulary that it was trained with"
        )
    return words
