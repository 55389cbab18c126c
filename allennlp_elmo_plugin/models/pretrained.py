"""
Read pretrained language models, to train them further or to export them: archives and folders of
training runs, exported models, and checkpoints of bilm-tf.
"""

import logging
import os
import reprlib
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

import torch
from allennlp.common.file_utils import cached_path
from allennlp.data.vocabulary import NAMESPACE_PADDING_FILE
from allennlp.models.archival import CONFIG_NAME

from allennlp_elmo_plugin.bilm.checkpoints.published_layout import (
    Dataset,
    Part,
    datasets,
    softmax_datasets,
)
from allennlp_elmo_plugin.bilm.checkpoints.saved_variables import (
    SavedVariables,
    TensorVariables,
    check_tied,
    find_variables,
    flatten,
    load,
    make_language_model,
    read_options,
)
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.bilm.vocabulary import read_vocabulary_file
from allennlp_elmo_plugin.data.vocabulary import (
    LM_NAMESPACE,
    VOCABULARY_FILE,
    VOCABULARY_FOLDER,
    read_vocabulary_folder,
)
from allennlp_elmo_plugin.files.json_file import read_json_object, shown
from allennlp_elmo_plugin.files.model_archive import unpacked_files
from allennlp_elmo_plugin.files.model_file_names import ARCHIVED_WEIGHT_FILE, OPTIONS_FILE
from allennlp_elmo_plugin.files.tensor_file import TensorFile
from allennlp_elmo_plugin.modules.elmo_files import DEFAULT_OPTIONS_FILE

logger = logging.getLogger(__name__)

PathLike = Union[str, "os.PathLike[str]"]

# The weights in an archive, and in the folder of a training run.
_WEIGHTS = (ARCHIVED_WEIGHT_FILE, "best.th")
_ARCHIVE_FILES = (
    CONFIG_NAME,
    OPTIONS_FILE,
    ARCHIVED_WEIGHT_FILE,
    f"{VOCABULARY_FOLDER}/{LM_NAMESPACE}.txt",
    f"{VOCABULARY_FOLDER}/{NAMESPACE_PADDING_FILE}",
)
_MODEL_TYPE = "bidirectional_lm"
# How many training runs may each have started from the one before.
_MAX_ORIGINS = 16
# The addresses that may be downloaded if a stranger's file names them.
_PUBLISHED = DEFAULT_OPTIONS_FILE[: DEFAULT_OPTIONS_FILE.index("/elmo/") + len("/elmo/")]

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


def read_pretrained(path: str) -> PretrainedLanguageModel:
    """
    Read a language model from files that anybody may have written, as data alone.

    # Parameters

    path : `str`
        An archive of a `bidirectional_lm`, the folder it was trained in, a folder with options.json
        and weights.hdf5 (and perhaps softmax.hdf5 and vocab.txt, as `elmo-export` writes them), or
        a folder with options.json, a vocabulary and a checkpoint of bilm-tf.

    # Raises

    `FileNotFoundError` or `ValueError` that names the file and what is wrong with it.
    """
    found = _find(path)
    if os.path.isdir(found) and not os.path.exists(os.path.join(found, CONFIG_NAME)):
        with find_variables(Path(found)) as variables:
            return read_folder(Path(found), variables)
    return read_archive(path)


def read_archive(path: str) -> PretrainedLanguageModel:
    """
    Read the language model of a `model.tar.gz`, which may be given by its address, or of the folder
    of a training run, as data: nothing that config.json names is constructed, and the weights are
    not unpickled. Raises what `read_pretrained` raises.
    """
    with _archive_files(path) as folder:
        values, source = _archive_options(folder, path)
        words = read_vocabulary_folder(folder / VOCABULARY_FOLDER, f"{path}/{VOCABULARY_FOLDER}")
        weights = next(name for name in _WEIGHTS if (folder / name).exists())
        with TensorFile(folder / weights, f"{path}/{weights}") as file:
            variables = TensorVariables(file)
            options = read_options(values, source, variables)
            if options.n_tokens_vocab not in (None, len(words)):
                raise ValueError(
                    f'{path}: "n_tokens_vocab" of the options is {options.n_tokens_vocab}, but the '
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
    return PretrainedLanguageModel(path, options, words, bilm, softmax)


def _find(path: str) -> str:
    """
    Return the path on this machine of a path or address.
    """
    try:
        return cached_path(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no archive or folder {path}") from None
    except Exception as error:  # of any of the libraries that know how to download
        raise ValueError(
            f"{path} cannot be downloaded ({type(error).__name__}: {shown(error, 200)}); give the "
            "path of a file that was downloaded elsewhere"
        ) from error


@contextmanager
def _archive_files(path: str) -> Iterator[Path]:
    """
    Yield the folder of a training run, or one with the same files of an archive.
    """
    found = _find(path)
    with ExitStack() as unpacked:
        folder = Path(found)
        is_archive = os.path.isfile(found)
        if is_archive:
            folder = unpacked.enter_context(unpacked_files(found, path, _ARCHIVE_FILES))
        elif not os.path.isdir(found):
            raise ValueError(f"{path} is not a model.tar.gz: it is a device or a pipe")
        if not (folder / CONFIG_NAME).exists() or not any((folder / w).exists() for w in _WEIGHTS):
            raise ValueError(
                f"{path} is not the archive of a model: it needs {CONFIG_NAME} and {_WEIGHTS[0]}"
                if is_archive
                else f"The folder {path} is not that of a training run: it needs {CONFIG_NAME} and "
                f"{_WEIGHTS[-1]}, which are there after the first epoch"
            )
        yield folder


def _archive_options(folder: Path, path: str, depth: int = 0) -> Tuple[Dict[str, Any], str]:
    """
    Return the keys of options.json of an archived model, and their source for errors.
    """
    source = f"{path}/{CONFIG_NAME}"
    model = read_json_object(folder / CONFIG_NAME, source).get("model")
    if not isinstance(model, dict):
        raise ValueError(f'{source}: "model" must be a JSON object {{...}}')
    if model.get("type") == "from_archive":
        # A run that started from another archive has the options of that one.
        origin = model.get("archive_file")
        if not isinstance(origin, str) or not os.path.exists(origin) or depth == _MAX_ORIGINS:
            raise ValueError(
                f'{source}: "model.archive_file" must be the archive that the training started '
                f"from, but {reprlib.repr(origin)} is not there; put it there, or train with "
                '"pretrained_file", which does not need it afterwards'
            )
        with _archive_files(origin) as origin_folder:
            return _archive_options(origin_folder, origin, depth + 1)
    if model.get("type") != _MODEL_TYPE:
        raise ValueError(
            f"{source}: the model is of the type {reprlib.repr(model.get('type'))}; only a "
            f"{_MODEL_TYPE} can be read"
        )
    values, options_source = _written_options(model, source, folder, path)
    set_options(values, model, f"{source}, model")
    return values, options_source


def _written_options(
    model: Dict[str, Any], source: str, folder: Path, path: str
) -> Tuple[Dict[str, Any], str]:
    """
    Return the options in the model's section, or in the file that it names or the archive has.
    """
    options, options_file = model.get("options"), model.get("options_file")
    if options is not None and (options_file is not None or not isinstance(options, dict)):
        raise ValueError(
            f'{source}: "model" must have either "options", a JSON object {{...}}, or '
            '"options_file"'
        )
    if options is not None:
        return dict(options), f"{source}, model.options"
    if options_file is not None:
        if isinstance(options_file, str) and options_file.startswith(_PUBLISHED):
            return read_json_object(cached_path(options_file), options_file), options_file
        if isinstance(options_file, str) and os.path.isfile(options_file):
            return read_json_object(options_file), options_file
    if (folder / OPTIONS_FILE).exists():
        return read_json_object(folder / OPTIONS_FILE, f"{path}/{OPTIONS_FILE}"), path
    if options_file is not None:
        raise ValueError(
            f'{source}: "model.options_file" is {reprlib.repr(options_file)}, which is not a file '
            "here (of addresses, only those of the published models are followed); put it there, "
            f"or give the archive an {OPTIONS_FILE}"
        )
    raise ValueError(
        f"{path}: has no options. The archive of a model that was trained from a pretrained_file "
        f'has them where the configuration says "include_in_archive": ["{OPTIONS_FILE}"]'
    )


def set_options(
    values: Dict[str, Any], arguments: Mapping[str, Any], source: str = "bidirectional_lm"
) -> None:
    """
    Change options, the keys of options.json, by the arguments of a `bidirectional_lm`:
    `num_samples`, `dropout`, `share_embedding_softmax` and `bidirectional`, those that there are.

    # Raises

    `ValueError` that names `source`, if `num_samples` is not a number.
    """
    for key in ("dropout", "share_embedding_softmax", "bidirectional"):
        if arguments.get(key) is not None:
            values[key] = arguments[key]
    num_samples = arguments.get("num_samples")
    if num_samples is not None:
        if not isinstance(num_samples, int) or isinstance(num_samples, bool):
            raise ValueError(
                f'{source}: "num_samples" must be a whole number, but is '
                f"{reprlib.repr(num_samples)}"
            )
        values["sample_softmax"] = num_samples > 0
        if num_samples > 0:
            values["n_negative_samples_batch"] = num_samples


def read_folder(
    source: Path, variables: SavedVariables, vocab_file: Optional[PathLike] = None
) -> PretrainedLanguageModel:
    """
    Read the language model of a folder with options.json, weights and a vocabulary. Raises what
    `read_pretrained` raises.

    # Parameters

    source : `Path`
        The folder, or the prefix of a checkpoint's files in it.
    variables : `SavedVariables`
        Those that `find_variables` found there.
    vocab_file : `str`, optional (default = the one in the folder)
        The vocabulary; for a model without a table of words, any.
    """
    folder = source if source.is_dir() else source.parent
    path = folder / OPTIONS_FILE
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: there is no such file; bilm-tf writes it beside its checkpoints, and it is "
            "published with every weights.hdf5"
        )
    options = read_options(read_json_object(path), str(path), variables)
    # bilm-tf's rule for projections, as options.json can't express others.
    options = replace(options, project_lstm=None, project_characters=None)
    words = None
    if variables.n_words is not None or vocab_file is not None:
        words = _read_words(folder, variables, vocab_file)
        options = replace(options, n_tokens_vocab=len(words))
    bilm, softmax = make_language_model(options, variables)
    return PretrainedLanguageModel(str(folder), options, words, bilm, softmax)


def find_vocabulary(folder: Path) -> Optional[Path]:
    """
    Return the vocabulary in a folder: vocab.txt, one in AllenNLP's form, or the only other.
    """
    for path in (folder / VOCABULARY_FILE, folder / VOCABULARY_FOLDER / f"{LM_NAMESPACE}.txt"):
        if path.exists():
            return path
    found = sorted(folder.glob("vocab*.txt"))
    return found[0] if len(found) == 1 else None


def _read_words(
    folder: Path, variables: SavedVariables, vocab_file: Optional[PathLike]
) -> List[str]:
    path = find_vocabulary(folder) if vocab_file is None else Path(vocab_file)
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
