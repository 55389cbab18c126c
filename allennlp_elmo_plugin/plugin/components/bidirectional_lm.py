"""The AllenNLP model that trains a `BiLm` as bilm-tf does."""

import inspect
import math
import os
from typing import Any, Optional, Union

import torch
from allennlp.common.util import is_global_primary
from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.nn import RegularizerApplicator
from allennlp.nn.parallel import DdpAccelerator

from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.plugin.components.vocabulary import check_vocabulary
from allennlp_elmo_plugin.plugin.registration import configuration_errors
from allennlp_elmo_plugin.pretrained.downloads import cached_path
from allennlp_elmo_plugin.pretrained.file_names import OPTIONS_FILE
from allennlp_elmo_plugin.pretrained.language_model import PretrainedLanguageModel, read_pretrained
from allennlp_elmo_plugin.text.vocabulary import LM_NAMESPACE
from allennlp_elmo_plugin.training.language_model import LanguageModel


@Model.register("bidirectional_lm")
class BidirectionalLanguageModel(LanguageModel, Model):
    """
    `LanguageModel` for AllenNLP, which trains on the batches of the data loader "truncated_bptt".

    # Parameters

    vocab : `Vocabulary`
        With the namespace `lm_tokens` that `allennlp elmo-vocab` writes.
    options, options_file : `Dict[str, Any]`, `str`, optional (default = `None`)
        bilm-tf's options.json: its keys, or the file. See `BiLmOptions`.
    pretrained_file : `str`, optional (default = `None`)
        A language model to start from, by any name that `find_model` knows. Its options are the
        default. They are also written to `options.json` in the run's folder: with
        `"include_in_archive": ["options.json"]`, the archive needs no pretrained model.
    num_samples, dropout, ..., precision : optional
        Those of `LanguageModel`.
    """

    default_predictor = "bidirectional_lm"

    def __init__(
        self,
        vocab: Vocabulary,
        options: Optional[dict[str, Any]] = None,
        options_file: Optional[str] = None,
        pretrained_file: Optional[str] = None,
        num_samples: Union[int, str, None] = None,
        dropout: Optional[float] = None,
        variational_dropout: bool = False,
        recurrent_dropout: float = 0.0,
        state_reset: float = 0.0,
        share_embedding_softmax: Optional[bool] = None,
        bidirectional: Optional[bool] = None,
        precision: str = "float32",
        regularizer: RegularizerApplicator = None,  # type: ignore[assignment]
        serialization_dir: Optional[str] = None,
        ddp_accelerator: Optional[DdpAccelerator] = None,
    ) -> None:
        given, of_model = locals(), inspect.signature(LanguageModel).parameters
        settings = {name: given[name] for name in of_model if name in given and name != "options"}
        n_words = check_vocabulary(vocab)
        by_id = vocab.get_index_to_token_vocabulary(LM_NAMESPACE)
        with configuration_errors((FileNotFoundError, ValueError)):
            pretrained = None if pretrained_file is None else read_pretrained(pretrained_file)
            values, source = _read_options(options, options_file, pretrained, serialization_dir)
            super().__init__(
                values,
                [by_id[index] for index in range(n_words)],
                pretrained=pretrained,
                source=source,
                vocab=vocab,
                regularizer=regularizer,
                serialization_dir=serialization_dir,
                ddp_accelerator=ddp_accelerator,
                **settings,
            )
        if pretrained is not None and serialization_dir is not None and is_global_primary():
            self.options.write(os.path.join(serialization_dir, OPTIONS_FILE))

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, torch.Tensor]:
        with configuration_errors():
            return super().forward(*args, **kwargs)

    def get_metrics(self, reset: bool = False) -> dict[str, float]:
        metrics = super().get_metrics(reset)
        return {**metrics, "loss": loss_of(metrics["perplexity"])}


def loss_of(perplexity: float) -> float:
    """Return the loss that belongs to a perplexity, 0 without words."""
    return math.log(perplexity) if perplexity else 0.0


def _read_options(
    options: Optional[dict[str, Any]],
    options_file: Optional[str],
    pretrained: Optional[PretrainedLanguageModel],
    serialization_dir: Optional[str],
) -> tuple[dict[str, Any], str]:
    """Return the keys of options.json, and where they come from."""
    if options is not None and options_file is not None:
        raise ValueError("bidirectional_lm takes either options or options_file, not both")
    if options is not None:
        return dict(options), "options"
    if options_file is None and pretrained is not None:
        return pretrained.options.to_dict(), pretrained.source
    if options_file is None:
        # In an archive, the options of a model that was trained from a `pretrained_file`.
        options_file = os.path.join(serialization_dir or "", OPTIONS_FILE)
        if serialization_dir is None or not os.path.exists(options_file):
            raise ValueError(
                "bidirectional_lm needs options, options_file or pretrained_file; an archive has "
                f'them if its configuration says "include_in_archive": ["{OPTIONS_FILE}"]'
            )
    return BiLmOptions.from_file(cached_path(options_file)).to_dict(), options_file
