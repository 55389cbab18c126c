"""
The model card of an exported language model: README.md, with the facts that its files know, and
fields for its author.
"""

import json
import math
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, Mapping, NamedTuple

from allennlp_elmo_plugin.bilm.checkpoints.published_layout import datasets
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.files.json_file import read_json_object, to_json
from allennlp_elmo_plugin.files.model_file_names import METRICS_FILE
from allennlp_elmo_plugin.models.pretrained import PretrainedLanguageModel
from allennlp_elmo_plugin.modules.elmo_files import ModelFiles

_DIRECTIONS = ("", "forward_", "backward_")
# The sections of config.json that say how a model was trained.
_SECTIONS = ("model", "dataset_reader", "data_loader", "trainer")
_TO_FILL_IN = "(to be filled in by the author)"
_TO_COMPLETE = "## Language, data and licence\n\n" + "\n".join(
    f"- {field}: {_TO_FILL_IN}"
    for field in ("Language", "Training text", "Tokenisation", "Licence", "Author")
)


class Training(NamedTuple):
    """
    What the files of a training run, or of its archive, tell about it: sections of config.json, and
    the numbers in metrics.json; of a run that has not ended, in the last metrics_epoch_N.json.
    """

    config: Dict[str, Any]
    metrics: Dict[str, Any]

    @classmethod
    def of(cls, files: ModelFiles) -> "Training":
        """
        Read them from the files of a model of any kind.
        """
        if not files.is_run:
            return cls({}, {})
        folder, config = files.options.parent, read_json_object(files.options)
        epochs = folder.glob("metrics_epoch_*.json")
        newest_first = sorted(epochs, key=lambda each: (len(each.name), each.name), reverse=True)
        metrics: Dict[str, Any] = {}
        for path in [folder / METRICS_FILE, *newest_first]:
            if path.exists():
                with suppress(ValueError):  # NaN, of a training that diverged
                    metrics = read_json_object(path)
                break
        sections = {key: config[key] for key in _SECTIONS if key in config}
        return cls(_without_folders(sections), metrics)


def _without_folders(value: Any) -> Any:
    # They concern only the author.
    if isinstance(value, dict):
        return {key: _without_folders(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    if isinstance(value, str):
        return value.rstrip("/").rpartition("/")[2]
    return value


def model_card(
    name: str,
    model: PretrainedLanguageModel,
    training: Training,
    weight_file: Path,
    precision: str,
) -> str:
    """
    Return the model card, in Markdown.

    # Parameters

    name : `str`
        The file or folder that the export is written to, without what leads there.
    model : `PretrainedLanguageModel`
    training : `Training`
    weight_file : `Path`
        The HDF5 file that was written.
    precision : `str`
        The type of its numbers.
    """
    vocabulary = "none in the files" if model.words is None else f"{len(model.words):,} words"
    if model.words is not None and model.softmax is not None:
        vocabulary += ", which the softmax knew in training"
    facts = {
        "Property": "Value",
        **facts_of(model.options, weight_file),
        "Weights": f"{weight_file.name}, {precision}",
        "Vocabulary": vocabulary,
    }
    config = f"{_TO_FILL_IN[:-1]}: the files of the model have no config.json.)"
    if training.config:
        config = f"```json\n{to_json(training.config)}\n```"
    parts = [
        f"# ELMo: {name}",
        "A bidirectional language model for contextual word vectors (ELMo, Peters et al. 2018), in "
        "the layout of the published models. Exported by `allennlp elmo-export` of "
        "allennlp_elmo_plugin.",
        _table(facts),
        f"## Perplexity\n\n{_perplexities(training.metrics)}",
        f"## Training\n\n{config}",
        _TO_COMPLETE,
        f"## Use\n\n{_use(name, model.options, precision)}",
    ]
    return "\n\n".join(parts) + "\n"


def facts_of(options: BiLmOptions, weight_file: Path) -> Dict[str, str]:
    """
    Return the rows of a card's first table that options and weights determine.
    """
    directions = "in both directions" if options.bidirectional else "forward only"
    n_parameters = sum(math.prod(dataset.shape) for dataset in datasets(options))
    return {
        "LSTM layers": f"{options.n_layers}, {directions}",
        "Cells of a layer and direction": f"{options.lstm_dim:,}",
        "Dimensions per token in each layer": (
            f"{len(options.directions) * options.projection_dim:,}"
        ),
        "Input": _input(options),
        "Parameters": f"{n_parameters:,} without the softmax",
        "Size of the weights": f"{weight_file.stat().st_size / 1e6:,.1f} MB",
    }


def _input(options: BiLmOptions) -> str:
    char_cnn = options.char_cnn
    if char_cnn is None:
        return "words of the vocabulary"
    return (
        f"bytes of words, the first {char_cnn.max_characters_per_token - 2}; embeddings of "
        f"{char_cnn.embedding_dim}, convolutions {json.dumps(char_cnn.filters)} (width, number), "
        f"{char_cnn.n_highway} highway layers"
    )


def _perplexities(metrics: Mapping[str, Any]) -> str:
    rows = {"Text": "both directions | forward | backward"}
    for text, prefix in (("training, last epoch", "training"), ("validation", "best_validation")):
        found = [metrics.get(f"{prefix}_{kind}perplexity") for kind in _DIRECTIONS]
        if any(isinstance(value, (int, float)) for value in found):
            rows[text] = " | ".join("" if value is None else f"{value:.1f}" for value in found)
    if len(rows) == 1:
        return f"{_TO_FILL_IN[:-1]}: the files of the model have no metrics.json.)"
    return (
        _table(rows)
        + "\n\nWith a sampled softmax, the one of training looks better than it is; don't compare "
        "the two."
    )


def _use(name: str, options: BiLmOptions, precision: str) -> str:
    if options.char_cnn is None:
        return (
            "A model of words instead of characters, for training and evaluation; `Elmo` does not "
            f"read it.\n\n```bash\nallennlp elmo-import {shlex.quote(name)} my_model\n"
            "allennlp evaluate my_model/model.tar.gz text.txt\n```"
        )
    readers = "simple_elmo, bilm-tf and AllenNLP read the same files."
    if not options.bidirectional:
        readers = "Other programs may not read a model of one direction."
    elif precision != "float32":
        readers = (
            f"Other programs may not read weights in {precision}; export without `--precision` for "
            "AllenNLP and bilm-tf."
        )
    return (
        f"```python\nfrom allennlp_elmo_plugin import Elmo, ElmoEmbedder\n\n"
        f'layers = ElmoEmbedder("{name}").embed_sentence(["A", "sentence", "."])\n'
        f'elmo = Elmo("{name}", dropout=0.0)  # by default, dropout is 0.5 in training mode\n'
        "```\n\n"
        f"```bash\nallennlp elmo sentences.txt layers.hdf5 --all --options-file {shlex.quote(name)}"
        f"\n```\n\n"
        f"{readers}"
    )


def _table(rows: Mapping[str, str]) -> str:
    lines = [f"| {key} | {value} |" for key, value in rows.items()]
    n_columns = lines[0].count("|") - 1
    return "\n".join([lines[0], "|---" * n_columns + "|", *lines[1:]])
