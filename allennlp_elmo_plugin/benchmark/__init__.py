"""
The comparison of task models with and without ELMo: what `allennlp elmo-benchmark` does.

Imported when the command runs, not with the plugin.
"""
