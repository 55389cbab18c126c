"""
Probes of the layers of an ELMo, for `allennlp elmo-probe`. Start with `run.py`; `labelled_text.py`
reads the data, `probes.py` has the classifiers, and `report.py` writes the table and the picture.
"""
