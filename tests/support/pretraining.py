"""What the tests of pretraining configs share: a small size, a small text and the losses."""

import random
from pathlib import Path
from typing import Any, Dict, List

from allennlp.training.callbacks import TrainerCallback

N_WORDS = 40
BATCH_SIZE = 4
SMALL = {
    "dataset_reader.batch_size": BATCH_SIZE,
    "dataset_reader.num_steps": 5,
    "validation_dataset_reader.batch_size": BATCH_SIZE,
    "validation_dataset_reader.num_steps": 5,
    "model.num_samples": 20,
    "model.options.lstm.dim": 12,
    "model.options.lstm.projection_dim": 8,
    "trainer.num_epochs": 2,
    "trainer.callbacks": ["record_losses"],
}
SMALL_CHARACTERS = {
    "model.options.char_cnn.filters": [[1, 4], [2, 4], [3, 8]],
    "model.options.char_cnn.embedding.dim": 4,
}


@TrainerCallback.register("record_losses")
class RecordLosses(TrainerCallback):
    """Keeps the losses and the next learning rates of all training steps of the last run."""

    losses: List[float] = []
    learning_rates: List[float] = []

    def on_start(self, trainer: Any, is_primary: bool = True, **kwargs: Any) -> None:
        RecordLosses.losses = []
        RecordLosses.learning_rates = []

    def on_batch(
        self,
        trainer: Any,
        batch_inputs: Any,
        batch_outputs: List[Dict[str, Any]],
        *args: Any,
        is_training: bool,
        **kwargs: Any,
    ) -> None:
        if is_training:
            RecordLosses.losses += [output["loss"].item() for output in batch_outputs]
            RecordLosses.learning_rates.append(trainer.optimizer.param_groups[0]["lr"])


def write_text(path: Path, seed: int, n_sentences: int) -> None:
    """Write random sentences of `N_WORDS` words, one a line."""
    rng = random.Random(seed)
    words = [f"word{i}" for i in range(N_WORDS)]
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(n_sentences):
            # Rarer words are further back, as the sampler assumes.
            chosen = (words[int(N_WORDS * rng.random() ** 2)] for _ in range(rng.randint(1, 9)))
            file.write(" ".join(chosen) + "\n")
