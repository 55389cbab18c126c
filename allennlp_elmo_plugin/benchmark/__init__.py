"""
The comparison of task models with and without ELMo, for `allennlp elmo-benchmark`. Start with
`run.py`, one training; `results.py` finds the results, and `report.py` summarises them.
"""
