"""
All that changes AllenNLP or torch while the plugin is loaded. `compat.py` mends what newer versions
of torch and Python break, `drop_in.py` puts our ELMo under AllenNLP's names, `jsonnet.py` adds
functions to configs. docs/migration.md lists every name that is replaced.
"""


def apply() -> None:
    """
    Apply all patches that the installed versions need. Applying twice changes nothing.
    """
    from allennlp_elmo_plugin.patches import compat, drop_in, jsonnet

    compat.apply()
    jsonnet.add_native_functions()
    drop_in.apply()
