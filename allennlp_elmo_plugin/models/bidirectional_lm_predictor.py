"""The predictor for the language model: probabilities of sentences."""

import json
import locale
import math
import reprlib
import string
from typing import Any, List, Optional

from allennlp.common.checks import ConfigurationError
from allennlp.common.util import JsonDict
from allennlp.data import DatasetReader, Instance
from allennlp.models import Model
from allennlp.predictors import Predictor

from allennlp_elmo_plugin.data.vocabulary import LM_NAMESPACE
from allennlp_elmo_plugin.files.text_lines import split_words
from allennlp_elmo_plugin.models.sentence_probabilities import (
    perplexity_of,
    sentence_log_probabilities,
)

_LINES = (
    'each line is a sentence, {"sentence": "..."} or {"tokens": [...]}; with --predictor-args '
    "'{\"plain_text\": true}' each is a sentence, whatever it starts with"
)


@Predictor.register("bidirectional_lm")
class BidirectionalLanguageModelPredictor(Predictor):
    """
    Computes how likely sentences are under a `bidirectional_lm`: the log probability and perplexity
    of each in either direction, and the log probability of every token.

        allennlp predict model.tar.gz sentences.txt

    A line of input is a sentence, split at ASCII white space as the dataset reader does. A line
    that starts with `{` is a JSON object, `{"sentence": "its words"}` or
    `{"tokens": ["its", "words"]}`. AllenNLP skips blank lines.

    For each sentence the LSTM states start from zero, whereas training and `allennlp evaluate`
    carry them from sentence to sentence. So the numbers don't depend on what else is in the file,
    and differ a little from those of `allennlp evaluate`.

    # Parameters

    model : `BidirectionalLanguageModel`
    dataset_reader : `DatasetReader`
        Not used, since sentences don't come in windows here.
    plain_text : `bool`, optional (default = `None`)
        `true` if all lines are sentences, also those that start with `{`; `false` if all are JSON
        (`--predictor-args '{"plain_text": true}'`).
    """

    def __init__(
        self,
        model: Model,
        dataset_reader: DatasetReader,
        frozen: bool = True,
        plain_text: Optional[bool] = None,
    ) -> None:
        super().__init__(model, dataset_reader, frozen)
        self.plain_text = plain_text

    def predict(self, sentence: str) -> JsonDict:
        """Call `predict_json` for a sentence as a string."""
        return self.predict_json({"sentence": sentence})

    def load_line(self, line: str) -> JsonDict:
        plain_text = self.plain_text
        if plain_text is None:
            # No text has the latter; it is the words of a sentence as a list.
            plain_text = not line.lstrip(string.whitespace).startswith(("{", '["'))
        if plain_text:
            return {"sentence": line.strip(string.whitespace)}  # of ASCII
        try:
            return super().load_line(line)
        except ValueError as error:
            raise ConfigurationError(
                f"{reprlib.repr(line)} is not a JSON object ({error}); {_LINES}"
            ) from None

    def dump_line(self, outputs: JsonDict) -> str:
        """Return JSON with readable letters, where AllenNLP's output file can have them."""
        line = json.dumps(outputs, ensure_ascii=False) + "\n"
        try:
            line.encode(locale.getpreferredencoding(False))
        except UnicodeEncodeError:
            return super().dump_line(outputs)
        return line

    def predict_json(self, inputs: JsonDict) -> JsonDict:
        """
        # Parameters

        inputs : `JsonDict`
            `sentence`, a string, or `tokens`, a list of strings.

        # Returns

        `JsonDict`
            `tokens`; `unknown`, those that are not in the vocabulary and count as `<UNK>`;
            `perplexity`, the geometric mean of those of the directions; and for each direction of
            the model, in natural logarithms:

            - `forward_log_probabilities` of the tokens and then of `</S>`, each given what is left
              of it, and `backward_log_probabilities` of `<S>` and then of the tokens, each given
              what is right of it: one number more than there are tokens
            - `forward_log_probability`, their sum
            - `forward_perplexity`, `exp` of minus their mean
        """
        return self.predict_batch_json([inputs])[0]

    def predict_batch_json(self, inputs: List[JsonDict]) -> List[JsonDict]:
        """Call `predict_json` for several sentences at once."""
        sentences = [_tokens(each) for each in inputs]
        model: Any = self._model
        vocabulary = model.vocab.get_token_to_index_vocabulary(LM_NAMESPACE)
        log_probabilities = sentence_log_probabilities(
            model.bilm, model.softmax, vocabulary, sentences
        )
        outputs = []
        for row, tokens in enumerate(sentences):
            output: JsonDict = {
                "tokens": tokens,
                "unknown": [token for token in tokens if token not in vocabulary],
            }
            means = []
            for direction, values in log_probabilities.items():
                of_tokens = values[row, : len(tokens) + 1].tolist()
                total = math.fsum(of_tokens)
                means.append(total / len(of_tokens))
                output[f"{direction}_log_probabilities"] = of_tokens
                output[f"{direction}_log_probability"] = total
                output[f"{direction}_perplexity"] = perplexity_of(-means[-1])
            output["perplexity"] = perplexity_of(-math.fsum(means) / len(means))
            outputs.append(output)
        return outputs

    def predict_instance(self, instance: Instance) -> JsonDict:
        return self.predict_batch_instance([instance])[0]

    def predict_batch_instance(self, instances: List[Instance]) -> List[JsonDict]:
        raise ConfigurationError(
            "The instances of the dataset reader are windows of a text, not sentences: leave out "
            '--use-dataset-reader, and give sentences as lines {"sentence": "..."}'
        )


def _tokens(inputs: JsonDict) -> List[str]:
    values = inputs if isinstance(inputs, dict) else {}
    tokens, sentence = values.get("tokens"), values.get("sentence")
    if isinstance(tokens, list) and all(isinstance(token, str) for token in tokens):
        return tokens
    if not isinstance(sentence, str):
        raise ConfigurationError(f"{reprlib.repr(inputs)} has no sentence; {_LINES}")
    return split_words(sentence.encode("utf-8"))
