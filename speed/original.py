"""A second copy of AllenNLP's module of ELMo, in which the plugin replaces nothing."""

import importlib.util

_spec = importlib.util.find_spec("allennlp.modules.elmo")
assert _spec is not None and _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)

Elmo = _module.Elmo
ElmoBiLm = _module._ElmoBiLm
ElmoCharacterEncoder = _module._ElmoCharacterEncoder
