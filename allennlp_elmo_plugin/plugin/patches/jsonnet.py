"""Let configs import those of this package, and use two native functions."""

import functools
import os
import re
from typing import Any

from allennlp.common import params
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.commands.elmo_configs import CONFIGS
from allennlp_elmo_plugin.plugin.registration import replace_attribute
from allennlp_elmo_plugin.pretrained.find_model import elmo_model

# What `std.extVar` says about a missing variable.
_UNSET = re.compile(r"undefined external variable: (\w+)")
_original_evaluate_file = params.evaluate_file


def apply() -> None:
    """
    Add `std.native("elmo_model")(name)`, the files and size of an ELMo, and
    `std.native("ext_var_or_empty")(name)`, which is empty for a variable that isn't set.
    """
    why = "functions for jsonnet, which the configs of ELMo use"
    replace_attribute(params, "evaluate_file", _evaluate_file, why)


@functools.wraps(_original_evaluate_file)
def _evaluate_file(filename: str, *args: Any, ext_vars: Any = None, **kwargs: Any) -> str:
    if os.path.isdir(filename):  # jsonnet aborts the process.
        raise ConfigurationError(f"The config {filename} is a folder; give a file in it")
    variables = dict(ext_vars or {})
    kwargs.setdefault("jpathdir", str(CONFIGS))
    # Each has one parameter and never returns None: jsonnet's binding for Python confuses the
    # names of two parameters, and counts references to None wrongly.
    kwargs["native_callbacks"] = {
        "elmo_model": (("name",), elmo_model),
        "ext_var_or_empty": (("name",), lambda name: variables.get(name, "")),
    }
    try:
        return _original_evaluate_file(filename, *args, ext_vars=variables, **kwargs)
    except RuntimeError as error:
        # jsonnet makes an error without a text of Ctrl-C.
        if re.match(r"RUNTIME ERROR: (<NULL>)?$", str(error), re.M):
            raise KeyboardInterrupt from None
        unset = _UNSET.search(str(error))
        if unset is None:
            raise
        raise ConfigurationError(
            f"{filename} needs {unset[1]} in the environment: export {unset[1]}=..."
        ) from None
