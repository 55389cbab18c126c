"""Read pretrained language models, to train them further or to export them."""

import logging
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.exits import joined
from allennlp_elmo_plugin.files.atomic import PathLike
from allennlp_elmo_plugin.pretrained.checkpoints.layout import ModelFiles
from allennlp_elmo_plugin.pretrained.checkpoints.saved_variables import make_language_model
from allennlp_elmo_plugin.pretrained.file_names import VOCABULARY_FILE
from allennlp_elmo_plugin.pretrained.find_model import find_model

logger = logging.getLogger(__name__)

# The parameters with one row for each word.
_TABLES = ("bilm._token_embedder.weight", "softmax.weight", "softmax.bias")


class PretrainedLanguageModel(NamedTuple):
    """
    A pretrained language model from `source`, a path or an address. `words` is its vocabulary,
    `None` if it has no table of words. `softmax` is `None` if the files have none.
    """

    source: str
    options: BiLmOptions
    words: list[str] | None
    bilm: BiLm
    softmax: Softmax | None

    def parts_that_predict(self) -> tuple[Softmax, list[str]]:
        """Return the softmax and its words. Without them, raise an error."""
        if self.softmax is None or self.words is None:
            raise ValueError(
                f"{self.source}: has no softmax, with which a language model predicts words, as "
                "most published models; train one: allennlp-elmo-plugin elmo-train train.txt "
                f"--validation heldout.txt --from {joined([self.source])} --output my_elmo"
            )
        return self.softmax, self.words

    def modules(self) -> torch.nn.ModuleDict:
        """Return the parts of a `bidirectional_lm` by name, with a new softmax if need be."""
        softmax, options = self.softmax, self.options
        if softmax is None:
            shared: Any = self.bilm.token_layer.weight if options.share_embedding_softmax else None
            softmax = Softmax(len(self.words or []), options.projection_dim, weight=shared)
        return torch.nn.ModuleDict({"bilm": self.bilm, "softmax": softmax})

    def check_options(self, options: BiLmOptions, source: str) -> None:
        """Check that training with these options, which `source` has, can start from this model."""
        asked, own = (
            {**model.architecture, "share_embedding_softmax": model.share_embedding_softmax}
            for model in (options, self.options)
        )
        for key in sorted({*asked, *own}):
            if asked.get(key) != own.get(key):
                raise ValueError(
                    f'{source}: "{key}" is {asked.get(key)!r}, but {own.get(key)!r} in '
                    f"{self.source}, from which training starts; leave the options out"
                )

    def copy_to(self, model: torch.nn.Module, words: list[str]) -> None:
        """
        Copy the parameters to a `bidirectional_lm` of the same options. If its vocabulary `words`
        differs, tables of words get only the rows of the words that are in both.
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
            logger.warning(
                "%s has no softmax: a new one is trained, and the perplexity means nothing yet",
                self.source,
            )
        if self.words not in (None, words):
            logger.warning(
                "The vocabulary is not that of %s (%d words): %d of %d words are in it and keep "
                "their rows, the others start fresh",
                *(self.source, len(own_words), len(pairs), len(words)),
            )


def read_pretrained(name: str) -> PretrainedLanguageModel:
    """
    Read a language model, by any name that `find_model` knows, as data alone. A `FileNotFoundError`
    or `ValueError` names the file and what is wrong with it.
    """
    with find_model(name, for_training=True) as files:
        return read_model(files)


def read_model(
    files: ModelFiles, vocab_file: PathLike | None = None, as_published: bool = True
) -> PretrainedLanguageModel:
    """
    Do what `read_pretrained` does, with files that `find_model` found. `vocab_file` is by default
    the one in `files`, which is only read for a model with a table of words. With `as_published`, a
    model that options.json can't express is a `ValueError`.
    """
    if files.layout.read_only:
        raise ValueError(f"{files.source}: {files.layout.read_only}")
    with files.open() as (options, weights):
        if as_published:  # with bilm-tf's rule for projections
            options = replace(options, project_lstm=None, project_characters=None)
        words = None
        if weights.n_words is not None or vocab_file is not None:
            words = read_words(files, weights.n_words, vocab_file or files.vocabulary)
            options = replace(options, n_tokens_vocab=len(words))
        bilm, softmax = make_language_model(options, weights)
    return PretrainedLanguageModel(files.source, options, words, bilm, softmax)


def read_words(files: ModelFiles, n_words: int | None, path: PathLike | None) -> list[str]:
    if path is None:
        raise FileNotFoundError(
            f"{files.source}: has a model of {n_words} words, but not the vocabulary that says "
            f"which; put it there as {VOCABULARY_FILE}, one word a line"
        )
    words = files.layout.read_words(path)
    if n_words not in (None, len(words)):
        raise ValueError(
            f"{path}: has {len(words)} words, but the model in {files.source} has {n_words}; give "
            "the vocabulary that it was trained with"
        )
    return words
