"""The predictor for the language model, which computes probabilities of sentences."""

import math
import reprlib
import string
from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import JsonDict
from allennlp.data import DatasetReader
from allennlp.models import Model
from allennlp.predictors import Predictor

from allennlp_elmo_plugin.analysis.sentence_probabilities import (
    perplexity_of,
    predictions,
    sentence_log_probabilities,
)
from allennlp_elmo_plugin.text.lines import split_words
from allennlp_elmo_plugin.text.vocabulary import LM_NAMESPACE


@Predictor.register("bidirectional_lm")
class BidirectionalLanguageModelPredictor(Predictor):
    """
    Computes how likely sentences are under a `bidirectional_lm`, in either direction.

        allennlp predict model.tar.gz sentences.txt

    A line of input is a sentence, split at ASCII white space as the dataset reader does. If it
    starts with `{`, it is JSON: `{"sentence": "its words"}` or `{"tokens": ["its", "words"]}`.
    `--predictor-args '{"plain_text": true}'` reads all lines as sentences, `false` as JSON.

    The output has `tokens`; `unknown`, those that count as `<UNK>`; `perplexity`, the geometric
    mean of the directions'; and

    - `forward_log_probabilities` of the tokens and then of `</S>`, each given what is left of it,
      and `backward_log_probabilities` of `<S>` and then of the tokens, each given what is right of
      it: natural logarithms
    - `forward_log_probability`, their sum, and `forward_perplexity`, `exp` of minus their mean;
      the same for `backward`
    - of `{"sentence": "its words", "top_k": 5}`, `forward_likely_words` and
      `backward_likely_words`: the five likeliest words of a direction, with their probabilities, at
      each place of its log probabilities

    Each sentence starts from zero states, whereas `allennlp evaluate` carries them from sentence to
    sentence.
    """

    def __init__(
        self,
        model: Model,
        dataset_reader: DatasetReader,
        frozen: bool = True,
        plain_text: Optional[bool] = None,
    ) -> None:
        super().__init__(model, dataset_reader, frozen)
        if plain_text not in (None, True, False):
            raise ConfigurationError(f"plain_text is {plain_text!r}; it must be true or false")
        self.plain_text = plain_text

    def predict(self, sentence: str) -> JsonDict:
        return self.predict_json({"sentence": sentence})

    def load_line(self, line: str) -> JsonDict:
        looks_like_json = line.lstrip(string.whitespace).startswith("{")
        if self.plain_text or (self.plain_text is None and not looks_like_json):
            return {"sentence": line}
        try:
            return super().load_line(line)
        except ValueError as error:
            raise _not_a_sentence(line) from error

    def predict_json(self, inputs: JsonDict) -> JsonDict:
        return self.predict_batch_json([inputs])[0]

    def predict_batch_json(self, inputs: list[JsonDict]) -> list[JsonDict]:
        sentences = [_tokens(line) for line in inputs]
        model: Any = self._model
        vocabulary = model.vocab.get_token_to_index_vocabulary(LM_NAMESPACE)
        parts = model.bilm, model.softmax, vocabulary
        log_probabilities = sentence_log_probabilities(*parts, sentences)
        outputs = []
        for row, tokens in enumerate(sentences):
            unknown = [token for token in tokens if token not in vocabulary]
            output: JsonDict = {"tokens": tokens, "unknown": unknown}
            losses = []
            for direction, values in log_probabilities.items():
                of_tokens = values[row, : len(tokens) + 1].tolist()
                total = math.fsum(of_tokens)
                losses.append(-total / len(of_tokens))
                output[f"{direction}_log_probabilities"] = of_tokens
                output[f"{direction}_log_probability"] = total
                output[f"{direction}_perplexity"] = perplexity_of(losses[-1])
            output["perplexity"] = perplexity_of(math.fsum(losses) / len(losses))
            if top_k := inputs[row].get("top_k"):
                for direction, (hidden,), _ in predictions(*parts, [tokens]):
                    likely = [self._likely_words(vector, top_k) for vector in hidden]
                    output[f"{direction}_likely_words"] = likely
            outputs.append(output)
        return outputs

    def _likely_words(self, vector: torch.Tensor, top_k: int) -> dict[str, float]:
        model: Any = self._model
        probabilities = (model.softmax.weight @ vector + model.softmax.bias).softmax(0)
        values, ids = probabilities.topk(min(top_k, len(probabilities)))
        words = model.vocab.get_index_to_token_vocabulary(LM_NAMESPACE)
        return {words[i]: value for i, value in zip(ids.tolist(), values.tolist())}


def _tokens(inputs: JsonDict) -> list[str]:
    values = inputs if isinstance(inputs, dict) else {}
    tokens, sentence, top_k = map(values.get, ("tokens", "sentence", "top_k"))
    if top_k is not None and (not isinstance(top_k, int) or top_k < 1):
        raise ConfigurationError(f"top_k is {top_k!r}; use a whole number from 1")
    if isinstance(tokens, list) and all(isinstance(token, str) for token in tokens):
        return tokens
    if isinstance(sentence, str):
        return split_words(sentence.encode("utf-8"))
    raise _not_a_sentence(inputs)


def _not_a_sentence(value: Any) -> ConfigurationError:
    return ConfigurationError(
        f'{reprlib.repr(value)} is not a sentence: a line is its words, {{"sentence": "..."}} or '
        '{"tokens": [...]}; with --predictor-args \'{"plain_text": true}\' always its words'
    )
