"""Write a language model in the layout in which ELMo models are published."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allennlp_elmo_plugin.files.atomic import write_text
from allennlp_elmo_plugin.pretrained import file_names as names
from allennlp_elmo_plugin.pretrained.language_model import PretrainedLanguageModel
from allennlp_elmo_plugin.pretrained.model_card import model_card
from allennlp_elmo_plugin.pretrained.weight_file import write_softmax, write_weights

PUBLISHED_FILES = (names.OPTIONS_FILE, names.WEIGHT_FILE, names.SOFTMAX_FILE, names.CARD_FILE)


def write_published(
    folder: Path,
    title: str,
    model: PretrainedLanguageModel,
    config: Mapping[str, Any],
    metrics: Mapping[str, Any],
    precision: str = "float32",
    zipped: bool = False,
) -> None:
    """Write all but the vocabulary; no softmax if `zipped`, and no card if there is one."""
    weights = folder / (names.NLPL_WEIGHT_FILE if zipped else names.WEIGHT_FILE)
    model.options.write(folder / names.OPTIONS_FILE)
    write_weights(weights, model.bilm, precision)
    if model.softmax is not None and not zipped:
        write_softmax(folder / names.SOFTMAX_FILE, model.softmax)
    if not (folder / names.CARD_FILE).exists():
        text = model_card(title, model, config, metrics, weights, precision)
        write_text(folder / names.CARD_FILE, text)
