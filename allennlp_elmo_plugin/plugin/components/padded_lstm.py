"""A bidirectional LSTM that trains fast on a CPU."""

from typing import Optional

import torch
from allennlp.modules import Seq2SeqEncoder


@Seq2SeqEncoder.register("padded_lstm")
class PaddedLstm(Seq2SeqEncoder):
    """
    AllenNLP's encoder `lstm` with `bidirectional`: the same arguments, initial values and outputs.
    It runs on padded sequences, since on a CPU the gradient of torch's packed sequences takes time
    that grows with the square of their length.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self._input_size, self._output_size = input_size, 2 * hidden_size
        sizes = [input_size] + [self._output_size] * (num_layers - 1)
        # Forward and backward for each layer, in the order of the parameters of torch's own LSTM
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
        hidden_size)`, with zeros after the ends by `mask`, shape `(batch_size, timesteps)`.
        """
        lengths = inputs.new_full(inputs.shape[:1], inputs.size(1)) if mask is None else mask.sum(1)
        steps = torch.arange(inputs.size(1), device=inputs.device)  # (timesteps,)
        # The steps of each sequence in reverse order, then padding: (batch_size, timesteps, 1)
        last = lengths.long().unsqueeze(1) - 1
        order = torch.where(steps <= last, last - steps, steps).unsqueeze(-1)
        output = inputs
        for i in range(0, len(self._lstms), 2):
            output = self._dropout(output) if i else output
            forward, _ = self._lstms[i](output)
            backward, _ = self._lstms[i + 1](output.gather(1, order.expand_as(output)))
            output = torch.cat([forward, backward.gather(1, order.expand_as(backward))], dim=-1)
        return output if mask is None else output * mask.unsqueeze(-1)
