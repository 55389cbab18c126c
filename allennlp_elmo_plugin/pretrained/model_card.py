"""The model card, README.md, of an exported language model, with fields for its author."""

import json
import math
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allennlp_elmo_plugin.files.json_file import to_json
from allennlp_elmo_plugin.files.markdown import markdown_table
from allennlp_elmo_plugin.pretrained.checkpoints.published_layout import datasets
from allennlp_elmo_plugin.pretrained.file_names import CONFIG_FILE, METRICS_FILE
from allennlp_elmo_plugin.pretrained.language_model import PretrainedLanguageModel

_PATH = re.compile(r'"(?:[^"\\]|\\.)*/((?:[^"\\/]|\\.)+)/?"')

_CARD = """\
# ELMo: {name}

A bidirectional language model for contextual word vectors (ELMo, Peters et al. 2018), {layout}\
. Written by allennlp_elmo_plugin.

{facts}

## Perplexity

{perplexities}

## Training

{config}

## Language, data and licence

- Language and author: (to be filled in by the author)
- Training text and its tokenisation: (to be filled in by the author)
- Licence: (to be filled in by the author)

## Use

{use}
"""
_MISSING = "(to be filled in by the author: the files of the model have no {})"
_USE = """\
```python
from allennlp_elmo_plugin import Elmo, ElmoEmbedder

layers = ElmoEmbedder("{name}").embed_sentence(["A", "sentence", "."])
elmo = Elmo("{name}", dropout=0.0)  # by default, dropout is 0.5 in training mode
```

```bash
allennlp-elmo-plugin elmo sentences.txt layers.hdf5 --all --model {quoted}
```

simple_elmo, bilm-tf and AllenNLP can read the same files if the weights are float32 and the model
reads characters, in two directions and with projections."""
_USE_OF_ONNX = """\
ONNX Runtime runs this file. Output: `layers`, float32, of shape (layers, sentences, words,
dimensions). Input: `{ids}."""
_CHARACTER_IDS = """\
character_ids`, int64, of shape (sentences, words, {width}): for each word 259, the bytes of its
UTF-8 form plus 1, at most {most} of them, 260, and 261 up to the end; 0 after the end of a
sentence"""
_TOKEN_IDS = """\
token_ids`, int64, of shape (sentences, words): for each word its place, from 0, in the vocabulary,
which is in the metadata, or that of `<UNK>`; -1 after the end of a sentence"""


def model_card(
    name: str,
    model: PretrainedLanguageModel,
    config: Mapping[str, Any],
    metrics: Mapping[str, Any],
    weight_file: Path,
    precision: str,
) -> str:
    """
    Return the model card, in Markdown, of an export to a file or folder of this name. `config` and
    `metrics` are those of `Layout.read_training`, and `precision` is the type of the numbers.
    """
    options, char_cnn = model.options, model.options.char_cnn
    inputs = "words of the vocabulary"
    if char_cnn is not None:
        inputs = (
            f"bytes of words, the first {char_cnn.max_characters_per_token - 2}; embeddings of "
            f"{char_cnn.embedding_dim}, convolutions {json.dumps(char_cnn.filters)} "
            f"(width, number), {char_cnn.n_highway} highway layers"
        )
    vocabulary = "none in the files" if model.words is None else f"{len(model.words):,} words"
    if model.words is not None and model.softmax is not None:
        vocabulary += ", which the softmax predicts"
    directions = "in both directions" if options.bidirectional else "forward only"
    dim = len(options.directions) * options.projection_dim
    n_parameters = sum(math.prod(dataset.shape) for dataset in datasets(options))
    facts = {
        "LSTM layers": f"{options.n_layers}, {directions}",
        "Cells of a layer and direction": f"{options.lstm_dim:,}",
        "Dimensions per token in each layer": f"{dim:,}",
        "Input": inputs,
        "Parameters": f"{n_parameters:,} without the softmax",
        "Size of the weights": f"{weight_file.stat().st_size / 1e6:,.1f} MB",
        "Weights": f"{weight_file.name}, {precision}",
        "Vocabulary": vocabulary,
    }
    layout, use = "in the layout\nof the published models", _USE
    if weight_file.suffix == ".onnx":
        width = options.max_characters_per_token
        ids = _CHARACTER_IDS.format(width=width, most=width - 2) if width else _TOKEN_IDS
        layout, use = "as an ONNX\ngraph", _USE_OF_ONNX.format(ids=ids)
    text = _PATH.sub(r'"\1"', to_json(config))  # Only the author has these folders.
    return _CARD.format(
        name=name,
        layout=layout,
        facts=markdown_table(("Property", "Value"), facts.items()),
        perplexities=_perplexities(metrics),
        config=f"```json\n{text}\n```" if config else _MISSING.format(CONFIG_FILE),
        use=use.format(name=name, quoted=shlex.quote(name)),
    )


def _perplexities(metrics: Mapping[str, Any]) -> str:
    kinds, rows = ("", "forward_", "backward_"), []
    for text, prefix in (("training, last epoch", "training"), ("validation", "best_validation")):
        values = [metrics.get(f"{prefix}_{kind}perplexity") for kind in kinds]
        cells = [f"{value:.1f}" if isinstance(value, (int, float)) else "" for value in values]
        if any(cells):
            rows.append([text, *cells])
    if not rows:
        return _MISSING.format(METRICS_FILE)
    table = markdown_table(("Text", "both directions", "forward", "backward"), rows)
    return f"{table}\n\nDon't compare the two if training sampled the softmax."
