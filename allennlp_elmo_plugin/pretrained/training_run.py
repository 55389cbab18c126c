"""The options in the archive or the folder of a `bidirectional_lm`, read as data alone."""

import os
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.files.json_file import read_json_object
from allennlp_elmo_plugin.pretrained.archive import model_folder
from allennlp_elmo_plugin.pretrained.downloads import cached_path
from allennlp_elmo_plugin.pretrained.file_names import CONFIG_FILE, OPTIONS_FILE

PUBLISHED_ADDRESS = "https://allennlp.s3.amazonaws.com/models/elmo/"
"""Where AllenNLP's models are; what alone is downloaded if a stranger's file names it."""

_MAX_ORIGINS = 16  # training runs that each started from the one before
# Negative samples of `"num_samples": "auto"`, if the vocabulary is much larger.
_MANY_SAMPLES = 8192


def archived_options(folder: Path, n_words: int, depth: int = 0) -> BiLmOptions:
    """Return the options of the model of `n_words` in a folder with the files of an archive."""
    source = str(folder / CONFIG_FILE)
    try:
        model = read_json_object(source).get("model")
    except ValueError as error:  # jsonnet, as in older archives of task models
        raise ValueError(f"{error}; only the archive of a bidirectional_lm can be read") from None
    model = model if isinstance(model, dict) else {}
    kind, values = model.get("type"), model.get("options")
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
        name = reprlib.repr(kind)
        advice = ", as AllenNLP's transformer ELMo: use its bidirectional_lm_token_embedder"
        advice = f", not a bidirectional_lm{advice if 'language' in name else ''}"
        raise ValueError(f"{source}: the model is of the type {name}{advice}")
    if values is None:
        path, named = folder / OPTIONS_FILE, model.get("options_file")
        if isinstance(named, str) and named.startswith(PUBLISHED_ADDRESS):
            path = Path(cached_path(named))
        elif isinstance(named, str) and os.path.isfile(named):
            path = Path(named)
        if not path.exists():
            raise ValueError(
                f'{source}: "model.options_file" is {reprlib.repr(named)}, which is not a file '
                f"here; put it there, or {OPTIONS_FILE} into the archive (by the setting "
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
    values: dict[str, Any],
    arguments: Mapping[str, Any],
    n_words: int,
    source: str = "bidirectional_lm",
) -> None:
    """
    Change options, the keys of options.json, by those arguments of a `bidirectional_lm` that there
    are: `num_samples`, `dropout`, `share_embedding_softmax` and `bidirectional`.
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
