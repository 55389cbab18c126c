import logging
import os
import reprlib
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import torch
from allennlp.common.file_utils import cached_path
from allennlp.data.vocabulary import NAMESPACE_PADDING_FILE
from allennlp.models.archival import CONFIG_NAME

from allennlp_elmo_plugin.bilm.checkpoints.saved_variables import (
    SOFTMAX_BIAS,
    SavedVariables,
    check_finite,
    fill,
    find_variables,
    read_options,
)
from allennlp_elmo_plugin.bilm.checkpoints.weights import check_size
from allennlp_elmo_plugin.bilm.model import BiLm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.softmax import Softmax
from allennlp_elmo_plugin.bilm.token_embedding import TokenEmbedding
from allennlp_elmo_plugin.bilm.vocabulary import read_vocabulary_file
from allennlp_elmo_plugin.data.vocabulary import (
    LM_NAMESPACE,
    VOCABULARY_FILE,
    VOCABULARY_FOLDER,
    read_vocabulary_folder,
)
from allennlp_elmo_plugin.files.json_file import read_json_object, shown
from allennlp_elmo_plugin.files.model_archive import unpacked_files
from allennlp_elmo_plugin.files.tensor_file import TensorFile
from allennlp_elmo_plugin.modules.elmo_files import DEFAULT_OPTIONS_FILE

logger = logging.getLogger(__name__)

OPTIONS_FILE = "options.json"

# What is read of an archive. A folder of a training run has its best weights under another name.
_WEIGHTS = ("weights.th", "best.th")
_ARCHIVE_FILES = (
    CONFIG_NAME,
    OPTIONS_FILE,
    _WEIGHTS[0],
    f"{VOCABULARY_FOLDER}/{LM_NAMESPACE}.txt",
    f"{VOCABULARY_FOLDER}/{NAMESPACE_PADDING_FILE}",
)
_MODEL_TYPE = "bidirectional_lm"
# Runs that went on from one another.
_MAX_ORIGINS = 16
# The addresses that are followed where a stranger's file names them.
_PUBLISHED = DEFAULT_OPTIONS_FILE[: DEFAULT_OPTIONS_FILE.index("/elmo/") + len("/elmo/")]

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
    Read a language model from files, which anybody may have written: they are read as data alone.

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
        return _read_folder(Path(found))
    return read_archive(path)


def read_archive(path: str) -> PretrainedLanguageModel:
    """
    Read the language model of an archive, or of the folder of a training run, as data: what
    config.json names is not constructed, and the weights are not unpickled.

    # Parameters

    path : `str`
        A `model.tar.gz`, its address, or a folder.

    # Raises

    `FileNotFoundError` or `ValueError` that names the file and what is wrong with it.
    """
    with _archive_files(path) as folder:
        options = BiLmOptions.from_dict(*_archive_options(folder, path))
        words = read_vocabulary_folder(folder / VOCABULARY_FOLDER, f"{path}/{VOCABULARY_FOLDER}")
        if options.n_tokens_vocab not in (None, len(words)):
            raise ValueError(
                f'{path}: "n_tokens_vocab" of the options is {options.n_tokens_vocab}, but the '
                f"vocabulary has {len(words)} words"
            )
        options = replace(options, n_tokens_vocab=len(words))
        weights = next(name for name in _WEIGHTS if (folder / name).exists())
        with TensorFile(folder / weights, f"{path}/{weights}") as file:
            n_softmax = len(words)
            if not options.share_embedding_softmax:
                n_softmax *= 1 + options.projection_dim
            check_size(options, file.n_numbers, n_softmax, file.source)
            bilm, softmax = _make_model(options, len(words))
            _load(torch.nn.ModuleDict({"bilm": bilm, "softmax": softmax}), file)
    return PretrainedLanguageModel(path, options, words, bilm, softmax)


def _find(path: str) -> str:
    """
    The path on this machine of a path or address.
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
    The folder of a training run, or one with the same files of an archive.
    """
    found = _find(path)
    if os.path.isdir(found):
        _check_archive_files(Path(found), path)
        yield Path(found)
    elif not os.path.isfile(found):
        raise ValueError(f"{path} is not a model.tar.gz: it is a device or a pipe")
    else:
        with unpacked_files(found, path, _ARCHIVE_FILES) as folder:
            _check_archive_files(folder, path)
            yield folder


def _check_archive_files(folder: Path, path: str) -> None:
    if (folder / CONFIG_NAME).exists() and any((folder / name).exists() for name in _WEIGHTS):
        return
    if os.path.isfile(path):
        raise ValueError(
            f"{path} is not the archive of a model: it needs {CONFIG_NAME} and {_WEIGHTS[0]}"
        )
    raise ValueError(
        f"The folder {path} is not that of a training run: it needs {CONFIG_NAME} and "
        f"{_WEIGHTS[-1]}, which are there when the first epoch is through"
    )


def _archive_options(folder: Path, path: str, depth: int = 0) -> Tuple[Dict[str, Any], str]:
    """
    The keys of options.json of an archived model, and where they are from.
    """
    source = f"{path}/{CONFIG_NAME}"
    model = read_json_object(folder / CONFIG_NAME, source).get("model")
    if not isinstance(model, dict):
        raise ValueError(f'{source}: "model" must be a JSON object {{...}}')
    if model.get("type") == "from_archive":
        # A run that went on from another archive has the options of that one.
        origin = model.get("archive_file")
        if not isinstance(origin, str) or not os.path.exists(origin) or depth == _MAX_ORIGINS:
            raise ValueError(
                f'{source}: "model.archive_file" must be the archive that the training started '
                f"from, but {reprlib.repr(origin)} is not there; put it there, or train with "
                '"pretrained_file", which needs it no more'
            )
        with _archive_files(origin) as origin_folder:
            return _archive_options(origin_folder, origin, depth + 1)
    if model.get("type") != _MODEL_TYPE:
        raise ValueError(
            f"{source}: the model is of the type {reprlib.repr(model.get('type'))}; only a "
            f"{_MODEL_TYPE} can be read"
        )
    values, options_source = _written_options(model, folder, path)
    set_options(values, model, f"{source}, model")
    return values, options_source


def _written_options(model: Dict[str, Any], folder: Path, path: str) -> Tuple[Dict[str, Any], str]:
    """
    The options in the model's section, or in the file that it names or the archive has.
    """
    source = f"{path}/{CONFIG_NAME}"
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
    Change options as the arguments of a `bidirectional_lm` of the same names say.

    # Parameters

    values : `Dict[str, Any]`
        The keys of options.json, which are changed.
    arguments : `Mapping[str, Any]`
        `num_samples`, `dropout`, `share_embedding_softmax` and `bidirectional`, those that there
        are.
    source : `str`, optional
        What an error calls the arguments.

    # Raises

    `ValueError`
        `num_samples` is not a number.
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


def _make_model(options: BiLmOptions, n_words: int) -> Tuple[BiLm, Softmax]:
    bilm = BiLm(options)
    shared: Any = bilm.token_layer.weight if options.share_embedding_softmax else None
    return bilm, Softmax(n_words, options.projection_dim, weight=shared)


def _load(model: torch.nn.Module, file: TensorFile) -> None:
    """
    Fill a model by the names of a state dict.
    """
    state = model.state_dict()
    differing = sorted(set(state) ^ set(file.tensors))
    if differing:
        whose = "the model has and the file lacks" if differing[0] in state else "the model lacks"
        raise ValueError(
            f"{file.source}: there is a tensor '{shown(differing[0])}' that {whose} "
            f"({len(differing)} such); are these the weights of this model?"
        )
    for name, target in state.items():
        shape = file.tensors[name].shape
        if shape != tuple(target.shape):
            raise ValueError(
                f"{file.source}: the tensor {name!r} has shape {shape}, but the options ask for "
                f"{tuple(target.shape)}; are these the weights of this model?"
            )
        values = file.read(name)
        check_finite(name, values, file.source)
        target.copy_(values)


def _read_folder(folder: Path) -> PretrainedLanguageModel:
    variables = find_variables(folder)
    options_path = folder / OPTIONS_FILE
    values = read_options(options_path, variables)
    options = BiLmOptions.from_dict(values, source=str(options_path))
    words = _read_words(folder, variables)
    n_words = 1 if words is None else len(words)
    bilm, softmax = _make_model(options, n_words)
    fill(bilm, softmax, variables)
    has_softmax = SOFTMAX_BIAS in variables.shapes
    return PretrainedLanguageModel(
        str(folder), options, words, bilm, softmax if has_softmax else None
    )


def _read_words(folder: Path, variables: SavedVariables) -> Optional[List[str]]:
    """
    The vocabulary in a folder; `None` where nothing needs one.
    """
    n_words = variables.n_words
    if n_words is None:
        return None
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
