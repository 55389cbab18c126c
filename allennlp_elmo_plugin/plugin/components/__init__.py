"""The components that configs name."""

from allennlp_elmo_plugin.plugin.components.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.plugin.components.bidirectional_lm_predictor import (
    BidirectionalLanguageModelPredictor,
)
from allennlp_elmo_plugin.plugin.components.elmo_indexer import ELMoTokenCharactersIndexer
from allennlp_elmo_plugin.plugin.components.elmo_output_encoder import ElmoOutputEncoder
from allennlp_elmo_plugin.plugin.components.elmo_token_embedder import ElmoTokenEmbedder
from allennlp_elmo_plugin.plugin.components.padded_lstm import PaddedLstm
from allennlp_elmo_plugin.plugin.components.truncated_bptt_data_loader import (
    TruncatedBpttDataLoader,
)
from allennlp_elmo_plugin.plugin.components.truncated_bptt_reader import TruncatedBpttLmReader
from allennlp_elmo_plugin.plugin.components.vocabulary import FolderVocabulary
