"""AllenNLP's own ELMo, with which ours is compared: the plugin puts ours under its name."""

import importlib.util

_spec = importlib.util.find_spec("allennlp.modules.elmo")
assert _spec is not None and _spec.loader is not None
# A second copy of the module, which nothing is replaced in.
elmo = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(elmo)
