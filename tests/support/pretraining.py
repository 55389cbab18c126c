"""What the tests of pretraining configs share: a small size and a small text."""

import random
from pathlib import Path

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
    "trainer.callbacks": [],
}
SMALL_CHARACTERS = {
    "model.options.char_cnn.filters": [[1, 4], [2, 4], [3, 8]],
    "model.options.char_cnn.embedding.dim": 4,
}


def write_text(path: Path, seed: int, n_sentences: int) -> None:
    """Write random sentences of `N_WORDS` words, one a line."""
    rng = random.Random(seed)
    words = [f"word{i}" for i in range(N_WORDS)]
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(n_sentences):
            # Rarer words are further back, as the sampler assumes.
            chosen = (words[int(N_WORDS * rng.random() ** 2)] for _ in range(rng.randint(1, 9)))
            file.write(" ".join(chosen) + "\n")
