"""How fast this package is, beside AllenNLP's own modules; see docs/speed.md."""

import importlib.util
import sys
import types
from pathlib import Path

if importlib.util.find_spec("allennlp") is None:
    # The package itself imports AllenNLP; the language model, which speed.gpu measures, doesn't.
    _package = types.ModuleType("allennlp_elmo_plugin")
    _package.__path__ = [str(Path(__file__).resolve().parents[1] / _package.__name__)]
    sys.modules[_package.__name__] = _package
