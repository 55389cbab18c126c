"""
The language model as a model of AllenNLP. Start with `bidirectional_lm.py`; `pretrained.py` reads
the one that fine-tuning starts from, and `model_card.py` describes an exported one.
"""

from allennlp_elmo_plugin.models.bidirectional_lm import BidirectionalLanguageModel
from allennlp_elmo_plugin.models.bidirectional_lm_predictor import (
    BidirectionalLanguageModelPredictor,
)
