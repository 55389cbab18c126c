"""
What jsonnet offers to every configuration: this package's configs as a library path, and functions
that read an ELMo's options.json, and external variables that may be missing. `elmo.libsonnet` and
`data.libsonnet` call them by `std.native`. An archive holds the evaluated configuration and needs
none of this.
"""

import functools
import os
import re
from pathlib import Path
from typing import Any, Dict, Optional, Sequence, Union

from allennlp.common import params
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.files.model_file_names import OPTIONS_FILE
from allennlp_elmo_plugin.modules.elmo_files import ElmoFiles, find_file, is_short_name
from allennlp_elmo_plugin.patches.replaced_names import replace_attribute

_PACKAGE = Path(__file__).resolve().parents[1]
# An installed package contains the configs; in a clone of the repository they are beside it.
_INSTALLED = _PACKAGE / "training_config"
CONFIGS = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent / _INSTALLED.name


def elmo_model(name: str) -> Dict[str, Any]:
    """
    Return what a configuration needs to know about an ELMo.

    # Parameters

    name : `str`
        The folder or the archive of an ELMo, one of its two files, or a short name; see
        `ElmoFiles.find`.

    # Returns

    `Dict[str, Any]`
        `options_file`, `weight_file`, and `dim`, the size of a token's representation. Of a
        published model only the options are downloaded.

    # Raises

    `FileNotFoundError` or `ValueError` that names what is missing or wrong.
    """
    path = os.path.expanduser(name)
    if is_short_name(path):
        files = ElmoFiles(name, name)
        options = BiLmOptions.from_file(find_file(name, OPTIONS_FILE, "ELMO"))
    else:
        files = ElmoFiles.find(path)
        with files.open() as (options, _):
            pass
    return {
        "options_file": files.options_file,
        "weight_file": files.weight_file,
        "dim": len(options.directions) * options.projection_dim,
    }


def apply() -> None:
    """
    Add the functions `std.native("elmo_model")(name)` and `std.native("ext_var_or_empty")(name)` to
    every configuration that AllenNLP reads. The latter is `std.extVar`, with an empty string for a
    variable that is missing. `import` finds the files of `CONFIGS`, after those beside the
    configuration. Adding them twice changes nothing.
    """
    why = "functions for jsonnet, which the configs of ELMo use"
    replace_attribute(params, "evaluate_file", _evaluate_file, why)


# The error of `std.extVar` about a variable that is missing.
_UNSET = re.compile(r"undefined external variable: (\w+)")

_original_evaluate_file = params.evaluate_file


@functools.wraps(_original_evaluate_file)
def _evaluate_file(
    filename: str,
    jpathdir: Union[str, Sequence[str]] = (),
    *args: Any,
    ext_vars: Optional[Dict[str, str]] = None,
    **kwargs: Any,
) -> str:
    if os.path.isdir(filename):  # jsonnet aborts the process.
        raise ConfigurationError(f"The config {filename} is a folder; give a file in it")
    variables = dict(ext_vars or {})
    paths = [str(CONFIGS), *([jpathdir] if isinstance(jpathdir, str) else jpathdir)]  # last wins
    # One parameter each, and no None: jsonnet's binding for Python confuses the names of two
    # parameters, and counts the references to None wrongly.
    kwargs["native_callbacks"] = {
        "elmo_model": (("name",), elmo_model),
        "ext_var_or_empty": (("name",), lambda name: variables.get(name, "")),
    }
    try:
        return _original_evaluate_file(filename, paths, *args, ext_vars=variables, **kwargs)
    except RuntimeError as error:
        unset = _UNSET.search(str(error))
        if unset is None:
            raise
        raise ConfigurationError(
            f"{filename} needs {unset[1]} in the environment: export {unset[1]}=..."
        ) from None
