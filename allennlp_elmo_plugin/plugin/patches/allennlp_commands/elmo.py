"""`allennlp.commands.elmo` of AllenNLP 0.9, whose folder `drop_in.apply` adds to its package."""

# Defined there, so that a process that has not imported the plugin can load pickles of it.
from allennlp_elmo_plugin.plugin.patches.elmo_embedder_of_0_9 import *  # noqa: F403
