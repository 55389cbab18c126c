"""
ELMo for AllenNLP.

Importing this package is all that AllenNLP's plugin mechanism does, so importing it mends AllenNLP
where a newer torch or Python needs that (`compat`) and registers every component.
"""

import importlib

from allennlp_elmo_plugin import compat

compat.apply()

# TODO(LEAD): replace by plain imports (and re-exports) once all of these exist.
_COMPONENTS = (
    "bilm",
    "data",
    "data.dataset_readers.truncated_bptt_lm",
    "data.token_indexers.elmo_characters",
    "data.fields",
    "data.data_loaders",
    "modules.elmo",
    "modules.token_embedders.elmo_token_embedder",
    "models.bidirectional_lm",
    "training",
    "embedder",
    "commands.elmo",
    "commands.elmo_vocab",
    "commands.elmo_export",
)
for _name in _COMPONENTS:
    try:
        importlib.import_module(f"{__name__}.{_name}")
    except ImportError as _error:
        if not (_error.name or "").startswith(__name__):
            raise
