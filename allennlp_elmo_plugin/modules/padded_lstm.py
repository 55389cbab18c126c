"""
A bidirectional LSTM that is quick to train on a CPU.
"""

from typing import List, Optional

import torch
from allennlp.modules import Seq2SeqEncoder


@Seq2SeqEncoder.register("padded_lstm")
class PaddedLstm(Seq2SeqEncoder):
    """
    The encoder that AllenNLP registers as `lstm`, with `bidirectional`, the same initial values and
    outputs, but on padded sequences. On a CPU, the gradient of torch's packed sequences is computed
    by adding a tensor of the size of the batch for each step, so its time grows with the square of
    the length.

    # Parameters

    input_size, hidden_size, num_layers, dropout
        Those of `torch.nn.LSTM`. The output has `2 * hidden_size` features.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self._input_size = input_size
        self._output_size = 2 * hidden_size
        sizes = [input_size] + [self._output_size] * (num_layers - 1)
        # Forward and backward of each layer, the order of torch's own parameters
        self._lstms = torch.nn.ModuleList(
            torch.nn.LSTM(size, hidden_size, batch_first=True) for size in sizes for _ in range(2)
        )
        self._dropout = torch.nn.Dropout(dropout)

    def get_input_dim(self) -> int:
        return self._input_size

    def get_output_dim(self) -> int:
        return self._output_size

    def is_bidirectional(self) -> bool:
        return True

    def forward(
        self, inputs: torch.Tensor, mask: Optional[torch.BoolTensor] = None
    ) -> torch.Tensor:
        """
        From shape `(batch_size, timesteps, input_size)` to `(batch_size, timesteps, 2 *
        hidden_size)`, with zeros where `mask`, shape `(batch_size, timesteps)`, is false. Only the
        end of a sequence is masked.
        """
        n_rows, n_steps = inputs.shape[:2]
        steps = torch.arange(n_steps, device=inputs.device).expand(n_rows, -1)
        if mask is None:
            order = steps.flip(1)
        else:
            # The steps of each sequence in reverse order; padding stays where it is.
            order = torch.where(mask, mask.sum(1, keepdim=True) - 1 - steps, steps)

        def reverse(sequences: torch.Tensor) -> torch.Tensor:
            return sequences.gather(1, order.unsqueeze(-1).expand_as(sequences))

        lstms: List[torch.nn.Module] = list(self._lstms)
        output = inputs
        for layer in range(0, len(lstms), 2):
            if layer:
                output = self._dropout(output)
            forward, _ = lstms[layer](output)
            backward, _ = lstms[layer + 1](reverse(output))
            output = torch.cat([forward, reverse(backward)], dim=-1)
        return output if mask is None else output * mask.unsqueeze(-1)
