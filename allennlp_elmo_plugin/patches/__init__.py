"""
All that changes AllenNLP or torch while the plugin is loaded. `compat.py` is for newer versions of
torch and Python, `jsonnet.py` adds functions to
configs, `progress_bars.py` is for AllenNLP's bars, and `drop_in.py` puts our ELMo, and the archives
of `archival.py`, under AllenNLP's names. docs/migration.md lists every name that is replaced.
"""


def apply() -> None:
    """
    Apply all patches that the installed versions need. Applying twice changes nothing.
    """
    from allennlp_elmo_plugin.patches import (
        compat,
        drop_in,
        jsonnet,
        progress_bars,
    )

    compat.apply()
    jsonnet.apply()
    progress_bars.apply()
    drop_in.apply()
