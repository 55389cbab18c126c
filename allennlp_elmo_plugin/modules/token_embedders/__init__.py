"""Token embedders of AllenNLP."""

from allennlp_elmo_plugin.modules.token_embedders.elmo_multi_token_embedder import (
    ElmoMultiTokenEmbedder,
)
from allennlp_elmo_plugin.modules.token_embedders.elmo_token_embedder import ElmoTokenEmbedder
