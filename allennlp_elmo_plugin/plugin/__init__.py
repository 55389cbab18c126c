"""
All that AllenNLP loads, and the only folder that imports it. `components/` has what configs name,
`training/` trains and recovers, `subcommands.py` has our commands for the program `allennlp`, and
`patches/` replaces names of AllenNLP.
"""

from allennlp_elmo_plugin.plugin import components, evaluation, patches, subcommands, training

patches.apply()
