"""What configurations that use an ELMo need to know about it, and where this package's are."""

import os
from pathlib import Path
from typing import Any, Dict

from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.files.model_file_names import OPTIONS_FILE
from allennlp_elmo_plugin.modules.elmo_files import find_file, find_model, is_short_name, resolve

_PACKAGE = Path(__file__).resolve().parents[1]
# An installed package contains the configs; in a clone of the repository they are beside it.
_INSTALLED = _PACKAGE / "training_config"
CONFIGS = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent / _INSTALLED.name


def elmo_model(name: str) -> Dict[str, Any]:
    """
    Return `options_file` and `weight_file` of an ELMo by any name that `find_model` knows, and
    `dim`, the size of a token's vector. Of a published model only the options are downloaded.

    # Raises

    `FileNotFoundError` or `ValueError` that names what is missing or wrong.
    """
    path = os.path.expanduser(name)
    if is_short_name(path):
        paths = name, name
        options = BiLmOptions.from_file(find_file(name, OPTIONS_FILE))
    else:
        paths = resolve(path)
        with find_model(*paths) as files, files.open() as (options, _):
            pass
    return {
        "options_file": paths[0],
        "weight_file": paths[1],
        "dim": len(options.directions) * options.projection_dim,
    }
