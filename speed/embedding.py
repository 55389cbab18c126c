"""Speed of embedding: ours against AllenNLP's `Elmo`, with the same random weights."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from allennlp_elmo_plugin import Elmo, batch_to_ids
from speed import original
from speed.report import Row, take_turns
from speed.workload import Corpus, Sentence

# For "word cache", a model reads this many batches of 64 sentences before the measurement.
_BATCHES_BEFORE = 40
# Batches that a program reads in each turn; ten times as many single sentences.
_BATCHES_OF_A_TURN = 2

WORKLOADS = {
    "random batches": ["small", "original"],
    "random batches, word cache": ["small", "original"],
    "length-sorted batches": ["small", "original"],
    "random batches, word cache, bfloat16": ["small", "original"],
    "from text, word cache": ["small"],
    "from text, word cache, bfloat16": ["small"],
    "one sentence at a time": ["small", "original"],
    "one sentence at a time, int8": ["original"],
}
"""
The rows of the table and the models that each is measured with. The name describes the row: a batch
of 64 random sentences, of 64 sentences of similar length, or a single sentence; whether vectors of
words are kept from batch to batch; our precision (AllenNLP's is float32); and whether the time
includes making character ids ("from text").
"""


@torch.no_grad()
def measure(
    size: str, options_file: str, weight_file: str, rounds: int, select: Callable[[str], Any]
) -> Iterator[Row]:
    """
    Measure the workloads whose names match `select` with the model of one of `SIZES`. Each program
    runs `rounds` times.
    """
    names = [name for name in WORKLOADS if select(name)]
    names = [name for name in names if size in WORKLOADS[name] or size == "tiny"]
    if names:
        theirs = original.Elmo(options_file, weight_file, 1, dropout=0.0).eval()
    for name in names:
        precision = name.split(", ")[-1]
        ours = Elmo(
            options_file,
            weight_file,
            1,
            dropout=0.0,
            precision=precision if precision in ("bfloat16", "int8") else "float32",
            max_cached_words=50_000 if "word cache" in name else 0,
        ).eval()
        yield _row(size, name, rounds, ours, theirs)


def _row(size: str, name: str, rounds: int, ours: Any, theirs: Any) -> Row:
    corpus = Corpus()
    single = name.startswith("one sentence")
    n_of_a_turn = _BATCHES_OF_A_TURN * (10 if single else 1)
    n_batches = (1 + rounds) * n_of_a_turn
    batches = corpus.batches(n_batches, 1 if single else 64, by_length="sorted" in name)
    if "word cache" in name:
        for batch in corpus.batches(_BATCHES_BEFORE):
            ours._elmo_lstm.token_layer.embed_words([word for row in batch for word in row])
    items: list[Any] = [batch_to_ids(batch) for batch in batches]
    programs = {"ours": ours, "AllenNLP": theirs}
    if name.startswith("from text"):

        def their_embed_sentences(batch: list[Sentence]) -> Any:
            return theirs(batch_to_ids(batch))

        items = batches
        programs = {"ours": ours.embed_sentences, "AllenNLP": their_embed_sentences}

    theirs._elmo_lstm._elmo_lstm.reset_states()
    actual, expected = (run(items[0])["elmo_representations"][0] for run in programs.values())
    largest = float((actual - expected).abs().max())
    if ours._elmo_lstm.precision == "float32" and largest > 1e-5:
        raise AssertionError(f"{name}: results differ by {largest}")
    turns = [items[start : start + n_of_a_turn] for start in range(0, n_batches, n_of_a_turn)]
    seconds = take_turns(
        {who: lambda turn, run=run: [run(item) for item in turn] for who, run in programs.items()},
        turns,
    )
    n_words = sum(len(words) for batch in batches[n_of_a_turn:] for words in batch) / rounds
    return Row(
        workload=name,
        size=size,
        value=seconds["AllenNLP"] / seconds["ours"],
        words_per_second=n_words / seconds["ours"],
        baseline_words_per_second=n_words / seconds["AllenNLP"],
        note=f"largest difference {largest:.0e}",
    )
