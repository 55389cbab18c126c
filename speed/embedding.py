"""Speed of embedding: ours against AllenNLP's `Elmo`, with the same random weights."""

from typing import Any, Callable, Dict, Iterator, List, NamedTuple

import torch

from allennlp_elmo_plugin import Elmo, batch_to_ids
from speed import original
from speed.report import Row, take_turns
from speed.workload import Corpus, Sentence

# Where words are kept, a model reads this many batches of 64 sentences before the measurement.
_BATCHES_BEFORE = 40
# Batches that one program reads before the other's turn; of single sentences, ten times as many.
_BATCHES_OF_A_TURN = 2


class Workload(NamedTuple):
    """
    A row of the table: by the size of the model, the ratio to reach; sentences at a time, which may
    have similar lengths; whether words are kept from batch to batch; the precision of our model
    (AllenNLP's is float32); and whether the time includes making character ids of the words.
    """

    name: str
    bars: Dict[str, float]
    batch_size: int = 64
    by_length: bool = False
    kept: bool = False
    precision: str = "float32"
    from_text: bool = False


WORKLOADS = [
    Workload("random batches", {"small": 12, "original": 3.2}),
    Workload("random batches, words kept", {"small": 17, "original": 3.5}, kept=True),
    Workload("length-sorted batches", {"small": 8, "original": 2.2}, by_length=True),
    Workload(
        "random batches, words kept, bfloat16",
        {"small": 18, "original": 9},
        kept=True,
        precision="bfloat16",
    ),
    Workload("from text, words kept", {"small": 17}, kept=True, from_text=True),
    Workload(
        "from text, words kept, bfloat16",
        {"small": 28},
        kept=True,
        precision="bfloat16",
        from_text=True,
    ),
    Workload("one sentence at a time", {"small": 3, "original": 2}, batch_size=1),
    Workload("one sentence at a time, int8", {"original": 4.4}, batch_size=1, precision="int8"),
]


@torch.no_grad()
def measure(
    size: str, options_file: str, weight_file: str, rounds: int, select: Callable[[str], bool]
) -> Iterator[Row]:
    """
    Measure the workloads whose names `select` wants, on the model of one of `SIZES`, with so many
    turns for each program.
    """
    workloads = [each for each in WORKLOADS if select(each.name)]
    workloads = [each for each in workloads if size in each.bars or size == "tiny"]
    if workloads:
        theirs = original.Elmo(options_file, weight_file, 1, dropout=0.0).eval()
    for workload in workloads:
        ours = Elmo(
            options_file,
            weight_file,
            1,
            dropout=0.0,
            precision=workload.precision,
            max_cached_words=50_000 if workload.kept else 0,
        ).eval()
        yield _row(size, workload, rounds, ours, theirs)


def _row(size: str, workload: Workload, rounds: int, ours: Any, theirs: Any) -> Row:
    corpus = Corpus()
    n_of_a_turn = _BATCHES_OF_A_TURN * (10 if workload.batch_size == 1 else 1)
    n_batches = (1 + rounds) * n_of_a_turn
    batches = corpus.batches(n_batches, workload.batch_size, workload.by_length)
    if workload.kept:
        for batch in corpus.batches(_BATCHES_BEFORE):
            ours._elmo_lstm.token_layer.embed_words([word for row in batch for word in row])
    items: List[Any] = batches if workload.from_text else [batch_to_ids(batch) for batch in batches]
    programs = {"ours": ours, "AllenNLP": theirs}
    if workload.from_text:

        def their_embed_sentences(batch: List[Sentence]) -> Any:
            return theirs(batch_to_ids(batch))

        programs = {"ours": ours.embed_sentences, "AllenNLP": their_embed_sentences}

    theirs._elmo_lstm._elmo_lstm.reset_states()
    actual, expected = (run(items[0])["elmo_representations"][0] for run in programs.values())
    error = float((actual - expected).norm() / expected.norm())
    largest = float((actual - expected).abs().max())
    if workload.precision == "float32" and largest > 1e-5:
        raise AssertionError(f"{workload.name}: results differ by {largest}")
    turns = [items[start : start + n_of_a_turn] for start in range(0, n_batches, n_of_a_turn)]
    seconds = take_turns(
        {
            name: lambda turn, run=run: [run(item) for item in turn]
            for name, run in programs.items()
        },
        turns,
    )
    n_words = sum(len(words) for batch in batches[n_of_a_turn:] for words in batch) / rounds
    return Row(
        workload=workload.name,
        size=size,
        value=seconds["AllenNLP"] / seconds["ours"],
        bar=workload.bars.get(size),
        words_per_second=n_words / seconds["ours"],
        baseline_words_per_second=n_words / seconds["AllenNLP"],
        note=f"largest difference {largest:.0e}, relative {error:.1e}",
    )
