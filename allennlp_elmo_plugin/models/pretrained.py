import logging
import os
import tarfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.common.file_utils import cached_path
from allennlp.models.archival import CONFIG_NAME, load_archive

from allennlp_elmo_plugin.bilm.bilm import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.saved_variables import (
    SOFTMAX_BIAS,
    SavedVariables,
    complete_options,
    fill,
    find_variables,
)
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.bilm.token_embedding import TokenEmbedding
from allennlp_elmo_plugin.bilm.vocabulary import read_vocabulary_file
from allennlp_elmo_plugin.data.vocabulary import LM_NAMESPACE, VOCABULARY_FILE, VOCABULARY_FOLDER

logger = logging.getLogger(__name__)

OPTIONS_FILE = "options.json"

# What fine-tuning can't change.
_FIXED_OPTIONS = ("bidirectional", "char_cnn", "lstm", "share_embedding_softmax")


class PretrainedLanguageModel(NamedTuple):
    """
    A language model to start from.

    # Parameters

    source : `str`
        Where it is from.
    options : `BiLmOptions`
        What it is made of.
    words : `List[str]`, optional
        Its vocabulary; `None` if it has no table of words.
    bilm : `BiLm`
        Its layers.
    softmax : `Softmax`, optional
        Its output layer; `None` if it came without.
    """

    source: str
    options: BiLmOptions
    words: Optional[List[str]]
    bilm: BiLm
    softmax: Optional[Softmax]

    def check_options(self, options: BiLmOptions, source: str) -> None:
        """
        Checks that a model of these options can start from this one.

        # Raises

        `ValueError` that names the key in which they differ.
        """
        given, own = (
            dict(_flatten({key: values.get(key) for key in _FIXED_OPTIONS}))
            for values in (options.to_dict(), self.options.to_dict())
        )
        for key in sorted({*given, *own}):
            if given.get(key) != own.get(key):
                raise ValueError(
                    f'{source}: "{key}" is {given.get(key)!r}, but {own.get(key)!r} in '
                    f"{self.source}, which training is to start from; leave the options out to "
                    "take those"
                )

    def copy_to(self, bilm: BiLm, softmax: Softmax, words: List[str]) -> None:
        """
        Gives a model what this one has learnt. Tables of words are copied word by word: where the
        vocabularies differ, shared words keep their rows, and other rows stay as they are.

        # Parameters

        bilm : `BiLm`
            Of the same options but for the number of words.
        softmax : `Softmax`
            Its output layer.
        words : `List[str]`
            Its vocabulary.
        """
        tables = _tables(bilm, softmax)
        own = {} if self.softmax is None else _tables(self.bilm, self.softmax)
        parameters = dict(bilm.named_parameters())
        with torch.no_grad():
            for name, values in self.bilm.named_parameters():
                if parameters[name] is not tables.get("token embedding"):
                    parameters[name].copy_(values)
            if isinstance(self.bilm.token_layer, TokenEmbedding):
                own["token embedding"] = self.bilm.token_layer.weight
            if not own:
                logger.warning(
                    "%s has no softmax: all %d rows of it start fresh. The perplexity means "
                    "nothing before the model is trained.",
                    self.source,
                    len(words),
                )
                return
            n_shared = _copy_rows(own, tables, self.words or [], words)
        self._report(n_shared, words)

    def _report(self, n_shared: int, words: List[str]) -> None:
        if self.words == words:
            logger.info("The vocabulary is that of %s: all words keep their rows", self.source)
        else:
            logger.warning(
                "The vocabulary is not that of %s (%d words): %d of %d words are in it and keep "
                "their rows, %d start fresh.",
                self.source,
                len(self.words or []),
                n_shared,
                len(words),
                len(words) - n_shared,
            )
        if self.softmax is None:
            logger.warning("%s has no softmax: its bias starts from zero.", self.source)


def _flatten(values: Any, prefix: str = "") -> Iterator[Tuple[str, Any]]:
    if not isinstance(values, dict):
        yield prefix, values
        return
    for key, value in values.items():
        yield from _flatten(value, f"{prefix}.{key}" if prefix else key)


def _tables(bilm: BiLm, softmax: Softmax) -> Dict[str, torch.Tensor]:
    """
    The parameters of one row a word. A weight that is shared is the token embedding.
    """
    tables: Dict[str, torch.Tensor] = {"softmax bias": softmax.bias, "softmax": softmax.weight}
    if isinstance(bilm.token_layer, TokenEmbedding):
        tables["token embedding"] = bilm.token_layer.weight
        if softmax.weight is bilm.token_layer.weight:
            del tables["softmax"]
    return tables


def _copy_rows(
    source: Dict[str, torch.Tensor],
    target: Dict[str, torch.Tensor],
    source_words: List[str],
    words: List[str],
) -> int:
    """
    Copies the rows of words that both have.

    # Returns

    `int`
        Their number.
    """
    if source_words == words:
        for name, table in source.items():
            target[name].copy_(table)
        return len(words)
    ids = {word: index for index, word in enumerate(source_words)}
    pairs = [(index, ids[word]) for index, word in enumerate(words) if word in ids]
    rows, source_rows = torch.tensor(pairs).unbind(1)  # (n_shared,) each
    for name, table in source.items():
        target[name][rows] = table[source_rows]  # (n_shared, ...)
    return len(pairs)


def read_pretrained(path: str) -> PretrainedLanguageModel:
    """
    # Parameters

    path : `str`
        An archive of a `bidirectional_lm`, the folder it was trained in, a folder with options.json
        and weights.hdf5 (and perhaps softmax.hdf5 and vocab.txt, as `elmo-export` writes them), or
        a folder with options.json, a vocabulary and a checkpoint of bilm-tf.

    # Raises

    `FileNotFoundError`, `ConfigurationError` or `ValueError` that names the file and what is wrong
    with it.
    """
    found = cached_path(path)
    if os.path.isdir(found) and not os.path.exists(os.path.join(found, CONFIG_NAME)):
        return _read_folder(Path(found))
    if not os.path.isdir(found) and not tarfile.is_tarfile(found):
        raise ConfigurationError(
            f"{path} is not a model.tar.gz, or one cut off; give an archive, or a folder with "
            "options.json and weights.hdf5 or a checkpoint of bilm-tf"
        )
    model: Any = load_archive(found).model
    if not isinstance(getattr(model, "bilm", None), BiLm):
        raise ConfigurationError(
            f"{path} has a model of the class {type(model).__name__}, not a bidirectional_lm"
        )
    indexed = model.vocab.get_index_to_token_vocabulary(LM_NAMESPACE)
    words = [indexed[index] for index in range(len(indexed))]
    return PretrainedLanguageModel(path, model.options, words, model.bilm, model.softmax)


def _read_folder(folder: Path) -> PretrainedLanguageModel:
    variables = find_variables(folder)
    options_path = folder / OPTIONS_FILE
    if not options_path.exists():
        raise FileNotFoundError(f"{folder}: there is no {OPTIONS_FILE} beside the weights")
    values = complete_options(BiLmOptions.from_file(options_path).to_dict(), variables.shapes)
    options = BiLmOptions.from_dict(values, source=str(options_path))
    words = _read_words(folder, variables)
    n_words = 1 if words is None else len(words)
    bilm = BiLm(options)
    shared = bilm.token_layer.weight if options.share_embedding_softmax else None
    softmax = Softmax(n_words, options.projection_dim, weight=shared)  # type: ignore[arg-type]
    fill(bilm, softmax, variables)
    has_softmax = SOFTMAX_BIAS in variables.shapes
    return PretrainedLanguageModel(
        str(folder), options, words, bilm, softmax if has_softmax else None
    )


def _read_words(folder: Path, variables: SavedVariables) -> Optional[List[str]]:
    """
    The vocabulary in a folder; `None` where nothing needs one.
    """
    shapes = [variables.shapes[n] for n in (SOFTMAX_BIAS, "embedding") if n in variables.shapes]
    if not shapes:
        return None
    n_words = shapes[0][0]
    paths = [folder / VOCABULARY_FILE, folder / VOCABULARY_FOLDER / f"{LM_NAMESPACE}.txt"]
    paths += sorted(folder.glob("vocab*.txt"))
    for path in paths:
        if path.exists():
            words = read_vocabulary_file(path)
            if len(words) != n_words:
                raise ValueError(
                    f"{path}: has {len(words)} words, but the model in {folder} has {n_words}; put "
                    "there the vocabulary that it was trained with"
                )
            return words
    raise FileNotFoundError(
        f"{folder}: has a model of {n_words} words, but not the vocabulary that says which; put it "
        f"there as {VOCABULARY_FILE}, one word a line"
    )
