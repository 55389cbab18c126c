"""
What the plugin changes in AllenNLP and torch. `compat.py` is for newer versions of torch and
Python, `jsonnet.py` adds functions to configs, and `drop_in.py` puts our ELMo, and the archives of
`archival.py`, under AllenNLP's names. docs/migration.md lists every name that is replaced.
"""

from allennlp_elmo_plugin.plugin.patches import compat, drop_in, jsonnet


def apply() -> None:
    """Apply all patches."""
    for module in (compat, jsonnet, drop_in):
        module.apply()
