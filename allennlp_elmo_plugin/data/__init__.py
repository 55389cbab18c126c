"""Text, windows and character ids: what the language model reads."""

from allennlp_elmo_plugin.data.data_loaders import TruncatedBpttDataLoader
from allennlp_elmo_plugin.data.dataset_readers import TruncatedBpttLmReader
from allennlp_elmo_plugin.data.token_indexers import ELMoTokenCharactersIndexer
