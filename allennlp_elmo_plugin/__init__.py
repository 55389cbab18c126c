"""
ELMo for AllenNLP: pretraining, export and use.

Importing this package is all that AllenNLP does with a plugin, so importing it registers every
component, mends AllenNLP where a newer torch or Python needs that (`compat`), and puts our ELMo in
the place of AllenNLP's (`drop_in`).
"""

import sys
from contextlib import nullcontext

from allennlp_elmo_plugin.common.quiet import quiet_start

# `python -m allennlp_elmo_plugin`, which imports this before `__main__`
with quiet_start() if sys.argv[:1] == ["-m"] else nullcontext():
    from allennlp_elmo_plugin import (
        commands,
        compat,
        data,
        drop_in,
        evaluation,
        models,
        modules,
        predictors,
        training,
    )
    from allennlp_elmo_plugin.bilm.bilm import BiLm
    from allennlp_elmo_plugin.bilm.options import BiLmOptions
    from allennlp_elmo_plugin.common.jsonnet import add_native_functions
    from allennlp_elmo_plugin.embedder import ElmoEmbedder
    from allennlp_elmo_plugin.modules import Elmo, batch_to_ids

__all__ = ["BiLm", "BiLmOptions", "Elmo", "ElmoEmbedder", "batch_to_ids"]

compat.apply()
add_native_functions()
drop_in.apply()
