"""
The comparison of task models with and without ELMo, for `allennlp elmo-benchmark`. Start with
`run.py`, one training; `results_folder.py` keeps its result, and `report.py` summarises all.
"""
