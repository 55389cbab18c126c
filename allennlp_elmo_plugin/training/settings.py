"""A run of `elmo-train` in its folder, by the settings in `training.json`."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from allennlp_elmo_plugin.exits import joined
from allennlp_elmo_plugin.files.json_file import read_json_object
from allennlp_elmo_plugin.pretrained import file_names as names
from allennlp_elmo_plugin.pretrained.adagrad_file import read_adagrad_state
from allennlp_elmo_plugin.pretrained.find_model import find_model
from allennlp_elmo_plugin.pretrained.language_model import PretrainedLanguageModel, read_model
from allennlp_elmo_plugin.text.vocabulary import read_vocabulary_file
from allennlp_elmo_plugin.training.language_model import LanguageModel
from allennlp_elmo_plugin.training.processes import rank, world_size
from allennlp_elmo_plugin.training.text_batches import TextBatches
from allennlp_elmo_plugin.training.trainer import Trainer

KINDS = {"model": LanguageModel, "text": TextBatches, "training": Trainer}
"""The classes whose arguments are the settings of a section."""


def make_trainer(
    run: dict[str, Any],
    words: list[str],
    folder: Path,
    device: str,
    pretrained: PretrainedLanguageModel | None = None,
) -> Trainer:
    """Return the trainer with the settings of a run."""
    given: dict[str, Any] = {"pretrained": pretrained, "source": "options"}
    model = LanguageModel(words=words, **given, **run["model"])
    whole = {"shuffle_sentences": False, "drop_last": False}
    all_of_it = {"batches_per_epoch": None, "max_rows": None}
    of_validation = {**run["text"], **whole, **all_of_it, **run["validation"]}
    text, validation = (
        TextBatches(
            words=words,
            max_characters_per_token=model.options.max_characters_per_token,
            bidirectional=model.options.bidirectional,
            device=device,
            rank=rank(),
            world_size=world_size(),
            **settings,
        )
        for settings in (run["text"], of_validation)
    )
    return Trainer(model, text, validation, folder, device=device, settings=run, **run["training"])


def train_run(folder: Path, device: str) -> None:
    """Train the run in a folder, from the start or from its checkpoint, to the end."""
    run = read_json_object(folder / names.TRAINING_FILE)
    words = read_vocabulary_file(folder / names.VOCABULARY_FILE)
    is_resumed = (folder / names.CHECKPOINT_FILE).exists()
    source = None if is_resumed else run.get("from")
    torch.manual_seed(run["seed"])
    with find_model(source, for_training=True) if source else nullcontext() as files:
        pretrained = None if files is None else read_model(files)
        trainer = make_trainer(run, words, folder, device, pretrained)
        if is_resumed:
            trainer.resume()
        elif files is not None and pretrained is not None and pretrained.words == words:
            accumulators = files.options.parent / names.ADAGRAD_FILE
            if os.path.exists(files.source) and not accumulators.exists():
                # `elmo-import` writes it beside the archive.
                path = Path(files.source)
                accumulators = (path if path.is_dir() else path.parent) / names.ADAGRAD_FILE
            if accumulators.exists() and trainer.kind.has_sums:
                parameters = trainer.model.named_parameters()
                read_adagrad_state(accumulators, parameters, trainer.optimizer)
        del pretrained
    epochs, best = trainer.train(), trainer.best
    if rank() == 0:
        perplexity = epochs[best]["validation_perplexity"]
        print(
            f"The model of epoch {best + 1}, validation perplexity {perplexity:,.2f}, is in "
            f"{folder}. Next: `allennlp-elmo-plugin elmo-perplexity {joined([str(folder)])} "
            f"TEXT`, or ElmoEmbedder({str(folder)!r})"
        )
