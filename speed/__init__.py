"""How fast this package is, beside AllenNLP's own modules; see docs/speed.md."""

import importlib.util

_spec = importlib.util.find_spec("allennlp.modules.elmo")
assert _spec is not None and _spec.loader is not None
# A second copy of AllenNLP's module, in which the plugin replaces nothing.
original = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(original)
