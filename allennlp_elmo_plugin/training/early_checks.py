"""What can be checked of a config of a language model before the folder of its run is made."""

import os
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Dict

from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader

from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.data.text import check_encoding, find_files
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.data.vocabulary import LM_NAMESPACE, find_vocabulary_folder
from allennlp_elmo_plugin.modules.language_model_archive import set_options

# No text of more bytes a word is expected: larger files are not counted.
_BYTES_A_WORD = 100


def check_early(params: Params) -> None:
    """
    Check that the vocabulary and the text of a config are there, that the vocabulary has more words
    than the model draws negative samples, that the first 64 MiB of text are UTF-8, and that it
    fills a batch. It takes no more time for a large corpus than for a small one.

    # Raises

    `ConfigurationError` that says what to change.
    """
    config = params.as_dict(quiet=True)
    _check_vocabulary(config)
    _check_text(config)


def _check_vocabulary(config: Dict[str, Any]) -> None:
    section = config.get("vocabulary")
    if not isinstance(section, dict) or section.get("type") != "from_files":
        return
    name = section.get("directory")
    if not isinstance(name, str) or "://" in name:
        return
    if os.path.isfile(name):
        if not (tarfile.is_tarfile(name) or zipfile.is_zipfile(name)):  # AllenNLP unpacks these
            raise ConfigurationError(
                f"The vocabulary, {name}, is a file; give the folder that "
                "`allennlp elmo-vocab TEXT --output FOLDER` writes"
            )
        return
    if not os.path.isdir(name):
        raise ConfigurationError(
            f"The folder of the vocabulary, {name}, does not exist (looked from {os.getcwd()}); "
            "make it with `allennlp elmo-vocab TEXT --output FOLDER`"
        )
    path = Path(find_vocabulary_folder(name), f"{LM_NAMESPACE}.txt")
    if not path.exists():
        raise ConfigurationError(
            f"{name} is not the vocabulary of a language model: {path} is missing; make it with "
            "`allennlp elmo-vocab TEXT --output FOLDER`"
        )
    with open(path, "rb") as file:
        n_words = sum(1 for _ in file)
    n_samples = _n_samples(config.get("model"), n_words)
    if n_samples >= n_words:
        raise ConfigurationError(
            f"The model draws {n_samples} distinct negative samples, but the vocabulary {name} has "
            f'{n_words} words. Add -o \'{{"model.num_samples": "auto"}}\', which trains with the '
            "full softmax where a vocabulary is small"
        )


def _n_samples(model: Any, n_words: int) -> int:
    """Return the number of negative samples that a config says; 0 if another file says it."""
    if not isinstance(model, dict) or model.get("type") != "bidirectional_lm":
        return 0
    if model.get("pretrained_file") and model.get("num_samples") is None:
        return 0  # The model chooses: the full softmax where the vocabulary is small.
    options = model.get("options")
    if not isinstance(options, dict):
        n_samples = model.get("num_samples")
        return n_samples if isinstance(n_samples, int) else 0
    try:
        values = dict(options)
        set_options(values, model, n_words)
        checked = BiLmOptions.from_dict(values, source="options")
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    return checked.n_negative_samples_batch if checked.sample_softmax else 0


def _check_text(config: Dict[str, Any]) -> None:
    train = config.get("dataset_reader")
    validation = config.get("validation_dataset_reader", train)
    for key, section in (("train", train), ("validation", validation), ("test", validation)):
        path = config.get(f"{key}_data_path")
        if not isinstance(section, dict) or section.get("type") != "truncated_bptt_lm":
            continue
        if path is None:
            # A user's own training may have other keys.
            if key == "train" and config.get("type", "default") == "default":
                raise ConfigurationError(
                    "There is no train_data_path; give a file, a folder or a glob of text files"
                )
            continue
        files = find_files(path)
        n_bytes = sum(file.stat().st_size for file in files)
        reader = DatasetReader.from_params(Params(dict(section)))
        assert isinstance(reader, TruncatedBpttLmReader)
        if reader.encoding_errors == "strict":
            check_encoding(files)
        if n_bytes < _BYTES_A_WORD * reader.batch_size * reader.num_steps:
            if reader.count_batches(path) == 0:
                reader.raise_too_small(path)
