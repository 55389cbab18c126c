"""
Functions for jsonnet, so that one configuration fits any ELMo: they read options.json, and external
variables that may be missing. `training_config/elmo.libsonnet` and `data.libsonnet` call them by
`std.native`. An archive holds the evaluated configuration and doesn't need them.
"""

import functools
import os
from typing import Any, Dict, Optional

from allennlp.common import params
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.files.model_file_names import OPTIONS_FILE, WEIGHT_FILE
from allennlp_elmo_plugin.modules.elmo_files import ElmoFiles, find_file
from allennlp_elmo_plugin.patches.names import replace_attribute


def elmo_model(name: str) -> Dict[str, Any]:
    """
    Return what a configuration needs to know about an ELMo.

    # Parameters

    name : `str`
        The folder of an ELMo, or the short name of a published one; see `ElmoFiles.find`.

    # Returns

    `Dict[str, Any]`
        `options_file`, `weight_file`, and `dim`, the size of a token's representation. Of a
        published model only the options are downloaded.

    # Raises

    `FileNotFoundError`, `ConfigurationError` or `ValueError` that names what is missing or wrong.
    """
    folder = os.path.expanduser(name)
    if os.path.isfile(folder):
        raise ConfigurationError(f"ELMO {name!r}: a file, where its folder must be given")
    is_folder = os.path.isdir(folder)
    if os.path.isfile(os.path.join(folder, WEIGHT_FILE)):
        with ElmoFiles.find(folder).open() as (options, _):
            pass
    else:
        options = BiLmOptions.from_file(find_file(folder, OPTIONS_FILE, "ELMO"))
    return {
        "options_file": os.path.join(folder, OPTIONS_FILE) if is_folder else name,
        "weight_file": os.path.join(folder, WEIGHT_FILE) if is_folder else name,
        "dim": len(options.directions) * options.projection_dim,
    }


def apply() -> None:
    """
    Add the functions `std.native("elmo_model")(name)` and `std.native("ext_var_or_empty")(name)` to
    every configuration that AllenNLP reads. The latter is `std.extVar`, with an empty string for a
    variable that is missing. Adding them twice changes nothing.
    """
    replace_attribute(params, "evaluate_file", _evaluate_file)


_original_evaluate_file = params.evaluate_file


@functools.wraps(_original_evaluate_file)
def _evaluate_file(filename: str, ext_vars: Optional[Dict[str, str]] = None, **kwargs: Any) -> str:
    variables = ext_vars or {}
    # One parameter each, and no None: jsonnet's binding for Python confuses the names of two
    # parameters, and counts the references to None wrongly.
    kwargs["native_callbacks"] = {
        "elmo_model": (("name",), elmo_model),
        "ext_var_or_empty": (("name",), lambda name: variables.get(name, "")),
    }
    return _original_evaluate_file(filename, ext_vars=variables, **kwargs)
