"""
The options in the archive of a `bidirectional_lm`, or in the folder it was trained in, read as
data: nothing that config.json names is constructed.
"""

import os
import reprlib
from pathlib import Path
from typing import Any, Dict, Mapping

from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.files.json_file import read_json_object
from allennlp_elmo_plugin.files.model_archive import model_folder
from allennlp_elmo_plugin.files.model_file_names import CONFIG_FILE, OPTIONS_FILE
from allennlp_elmo_plugin.modules.downloads import cached_path

PUBLISHED_ADDRESS = "https://allennlp.s3.amazonaws.com/models/elmo/"
"""Where AllenNLP's models are; what alone is downloaded if a stranger's file names it."""

# How many training runs may each have started from the one before.
_MAX_ORIGINS = 16
# Negative samples of `"num_samples": "auto"`, those of bilm-tf. Drawing them from a vocabulary that
# is hardly larger would take longer than the full softmax.
_MANY_SAMPLES = 8192


def archived_options(folder: Path, n_words: int, depth: int = 0) -> BiLmOptions:
    """
    Return the options of the model of `n_words` in a folder with the files of an archive. Raise
    `ValueError` that names the file and what is wrong with it.
    """
    source = str(folder / CONFIG_FILE)
    try:
        model = read_json_object(source).get("model")
    except ValueError as error:  # the archive of a task model with ELMo: jsonnet
        raise ValueError(f"{error}; only the archive of a bidirectional_lm can be read") from None
    model = model if isinstance(model, dict) else {}
    kind = model.get("type")
    if kind == "from_archive":
        # A run that started from another archive has the options of that one.
        origin = model.get("archive_file")
        if not isinstance(origin, str) or not os.path.exists(origin) or depth == _MAX_ORIGINS:
            raise ValueError(
                f'{source}: "model.archive_file" must be the archive that the training started '
                f"from, but {reprlib.repr(origin)} is not there; put it there"
            )
        with model_folder(origin, origin) as origin_folder:
            return archived_options(origin_folder, n_words, depth + 1)
    if kind != "bidirectional_lm":
        raise ValueError(
            f"{source}: the model is of the type {reprlib.repr(kind)}; only a bidirectional_lm can "
            "be read"
        )
    values, path, options_file = (
        model.get("options"),
        folder / OPTIONS_FILE,
        model.get("options_file"),
    )
    if values is None:
        if isinstance(options_file, str) and options_file.startswith(PUBLISHED_ADDRESS):
            path = Path(cached_path(options_file))
        elif isinstance(options_file, str) and os.path.isfile(options_file):
            path = Path(options_file)
        if not path.exists():
            raise ValueError(
                f'{source}: "model.options_file" is {reprlib.repr(options_file)}, which is not a '
                f"file here; put it there, or {OPTIONS_FILE} into the archive (by the setting "
                f'"include_in_archive": ["{OPTIONS_FILE}"] of the training)'
            )
        source, values = str(path), read_json_object(path)
    elif isinstance(values, dict):
        source, values = f"{source}, model.options", dict(values)
    else:
        raise ValueError(f'{source}: "model.options" must be a JSON object {{...}}')
    set_options(values, model, n_words, f"{folder / CONFIG_FILE}, model")
    if n_words:
        values["n_tokens_vocab"] = n_words
    return BiLmOptions.from_dict(values, source)


def set_options(
    values: Dict[str, Any],
    arguments: Mapping[str, Any],
    n_words: int,
    source: str = "bidirectional_lm",
) -> None:
    """
    Change options, the keys of options.json, by the arguments of a `bidirectional_lm`:
    `num_samples`, `dropout`, `share_embedding_softmax` and `bidirectional`, those that there are.
    The vocabulary has `n_words`. Raise `ValueError` for another `num_samples` than a number or
    "auto".
    """
    for key in ("dropout", "share_embedding_softmax", "bidirectional"):
        if arguments.get(key) is not None:
            values[key] = arguments[key]
    num_samples = arguments.get("num_samples")
    if num_samples == "auto":
        num_samples = _MANY_SAMPLES if n_words >= 2 * _MANY_SAMPLES else 0
    if num_samples is not None:
        if not isinstance(num_samples, int) or isinstance(num_samples, bool):
            raise ValueError(
                f'{source}: "num_samples" must be a whole number or "auto", but is '
                f"{reprlib.repr(num_samples)}"
            )
        values["sample_softmax"] = num_samples > 0
        if num_samples > 0:
            values["n_negative_samples_batch"] = num_samples
