"""
All that AllenNLP loads, and the only folder that imports it. `components/` has the classes that
configs name, `training/` trains and recovers, `subcommands.py` adds our commands to the program
`allennlp`, and `patches/` replaces names of AllenNLP.
"""

from allennlp_elmo_plugin.plugin import components, evaluation, patches, subcommands, training

patches.apply()
