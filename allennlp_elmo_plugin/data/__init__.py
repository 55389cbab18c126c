"""
Training data of the language model. `text.py` reads a corpus, `lexicon.py` numbers its words,
`windows.py` cuts it for truncated back-propagation, `truncated_bptt_reader.py` and
`truncated_bptt_data_loader.py` make instances and batches for AllenNLP's trainer. `elmo_indexer.py`
makes the character ids of task models.
"""

from allennlp_elmo_plugin.data.elmo_indexer import ELMoTokenCharactersIndexer
from allennlp_elmo_plugin.data.truncated_bptt_data_loader import TruncatedBpttDataLoader
from allennlp_elmo_plugin.data.truncated_bptt_reader import TruncatedBpttLmReader
