from typing import Iterator, List, NamedTuple, Sequence, Tuple

import torch

from allennlp_elmo_plugin.bilm.carried_state import CarriedState
from allennlp_elmo_plugin.bilm.characters import CharacterTable, sentences_to_character_ids
from allennlp_elmo_plugin.bilm.model import BiLm, BiLmOutput


class TimeWindow(NamedTuple):
    """
    What a biLM makes of the steps from `start` on, as many as the window is wide. In step i the
    forward direction reads token i of a sentence, the backward direction token i from the end.
    """

    start: int
    output: BiLmOutput

    def positions(self, direction: str, lengths: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """
        Where the packed vectors of a direction belong.

        # Parameters

        direction : `str`
        lengths : `torch.Tensor`
            Tokens of each sentence, shape `(batch_size,)`, on any device.

        # Returns

        `Tuple[torch.Tensor, torch.Tensor]`
            The row and the token in it, each of shape `(n_tokens,)`, on the model's device.
        """
        packing = self.output.packings[direction]
        step = self.start + packing.forward_step  # (n_tokens,)
        if direction == "backward":
            step = lengths.to(step.device)[packing.row] - 1 - step
        return packing.row, step


def run_in_windows(
    bilm: BiLm,
    sentences: Sequence[Sequence[str]],
    table: CharacterTable,
    carried: CarriedState,
    width: int,
) -> Iterator[TimeWindow]:
    """
    Runs a biLM over sentences of any length, a window of time after another. Either direction goes
    on from the state in which it left the window before, so that the numbers are those of one run
    over everything, while memory is needed for one window only.

    # Parameters

    bilm : `BiLm`
        A model of characters.
    sentences : `Sequence[Sequence[str]]`
        Words, `<S>` and `</S>` among them.
    table : `CharacterTable`
        How they are spelled.
    carried : `CarriedState`
        What the sentences start from; the state after their last words is left there.
    width : `int`
        Steps of a window, at least 1.
    """
    device = next(bilm.parameters()).device

    def character_ids(rows: List[Sequence[str]]) -> torch.Tensor:
        return torch.from_numpy(sentences_to_character_ids(rows, table)).to(device)

    for start in range(0, max(map(len, sentences)), width):
        window = [words[start : start + width] for words in sentences]
        reverse = [
            words[max(len(words) - start - width, 0) : max(len(words) - start, 0)][::-1]
            for words in sentences
        ]
        lengths = [len(words) for words in window]
        output = BiLm.forward(
            bilm,
            character_ids(window),  # (batch_size, width, max_characters)
            lengths,
            character_ids(reverse),
            lengths,
            carried,
        )
        yield TimeWindow(start, output)
