"""AllenNLP's commands `push-to-hf` and `build-vocab`, for our models."""

import functools
from typing import Any

from allennlp.commands import build_vocab
from allennlp.common import Params, push_to_hf
from allennlp.data import Vocabulary

from allennlp_elmo_plugin.data.vocabulary import check_vocabulary
from allennlp_elmo_plugin.patches import hub
from allennlp_elmo_plugin.patches.names import replace, replace_attribute

_make_vocab_from_params = build_vocab.make_vocab_from_params


def apply() -> None:
    """Replace AllenNLP's functions by ours. Applying twice changes nothing."""
    replace(push_to_hf, hub.push_to_hf)
    replace_attribute(build_vocab, "make_vocab_from_params", _make_vocabulary)


@functools.wraps(_make_vocab_from_params)
def _make_vocabulary(params: Params, *args: Any, **kwargs: Any) -> Vocabulary:
    """Refuse to build a vocabulary that no language model can be trained with."""
    reader: Any = params.params.get("dataset_reader")
    is_ours = isinstance(reader, dict) and reader.get("type") == "truncated_bptt_lm"
    vocab = _make_vocab_from_params(params, *args, **kwargs)
    if is_ours:
        check_vocabulary(vocab)
    return vocab
