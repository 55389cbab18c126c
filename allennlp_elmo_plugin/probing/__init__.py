"""Probes of the layers of an ELMo, for `allennlp elmo-probe`. Start with `run.py`."""
