from typing import Dict, List, Optional

import torch

from allennlp_elmo_plugin.bilm.carried_state import CarriedState
from allennlp_elmo_plugin.bilm.lstm import ProjectedLstm
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.packing import PackedBatch


class BiLstm(torch.nn.Module):
    """
    The LSTM layers of both directions of a biLM. The directions share nothing: each has its own
    layers, inputs and state.

    Layers are named `forward_layer_k` and `backward_layer_k`, as in AllenNLP's `ElmoLstm`.

    # Parameters

    options : `BiLmOptions`
        What the layers are made of.
    forget_bias : `float`, optional (default = `1.0`)
        See `ProjectedLstm`.
    """

    def __init__(self, options: BiLmOptions, forget_bias: float = 1.0) -> None:
        super().__init__()
        self.n_layers = options.n_layers
        self.directions = options.directions
        self.use_skip_connections = options.use_skip_connections
        self.dropout = torch.nn.Dropout(options.dropout)
        # Whether calls go on from the state the last one left, and that state. See `reset_states`.
        self.stateful = False
        self.carried = CarriedState()
        for layer in range(options.n_layers):
            for direction in self.directions:
                lstm = ProjectedLstm(
                    options.projection_dim,
                    options.lstm_dim,
                    options.projection_dim,
                    options.cell_clip,
                    options.proj_clip,
                    forget_bias,
                    options.project_lstm,
                )
                self.add_module(f"{direction}_layer_{layer}", lstm)

    def layer(self, direction: str, index: int) -> ProjectedLstm:
        return getattr(self, f"{direction}_layer_{index}")

    def reset_states(self, mask: Optional[torch.Tensor] = None) -> None:
        """
        Forgets the state that a `stateful` module carries from call to call.

        # Parameters

        mask : `torch.Tensor`, optional (default = `None`)
            Shape `(n_rows,)`: which rows to forget, of as many as there are; all by default.
        """
        self.carried.reset(mask)

    def forward(
        self,
        inputs: Dict[str, torch.Tensor],
        packings: Dict[str, PackedBatch],
        carried: Optional[CarriedState] = None,
    ) -> Dict[str, List[torch.Tensor]]:
        """
        # Parameters

        inputs : `Dict[str, torch.Tensor]`
            For each direction the token vectors it reads, shape `(n_tokens, projection_dim)`,
            packed in its order.
        packings : `Dict[str, PackedBatch]`
            For each direction the index of its batch.
        carried : `CarriedState`, optional (default = `None`)
            Where to start, and where to leave the state in the end. Without it, sequences start
            from zero, or from this module's own carried state if it is `stateful`.

        # Returns

        `Dict[str, List[torch.Tensor]]`
            For each direction the output of each layer, shape `(n_tokens, projection_dim)`.
        """
        if carried is None and self.stateful:
            carried = self.carried
        outputs: Dict[str, List[torch.Tensor]] = {}
        for direction in self.directions:
            vectors, packing = inputs[direction], packings[direction]
            outputs[direction] = []
            for index in range(self.n_layers):
                if packing.n_tokens:
                    vectors = self._run_layer(direction, index, vectors, packing, carried)
                outputs[direction].append(vectors)
        return outputs

    def _run_layer(
        self,
        direction: str,
        index: int,
        vectors: torch.Tensor,
        packing: PackedBatch,
        carried: Optional[CarriedState],
    ) -> torch.Tensor:
        lstm = self.layer(direction, index)
        vectors = self.dropout(vectors)  # (n_tokens, projection_dim)
        state = lstm.zero_state(packing.order.size(0), vectors)
        if carried is not None:
            state = carried.read((direction, index), packing.order, state)
        outputs, state = lstm(vectors, packing, state)
        if carried is not None:
            carried.write((direction, index), packing.order, state, packing.lengths.size(0))
        # The skip connection takes the input as the layer saw it, dropout included.
        return outputs + vectors if self.use_skip_connections and index > 0 else outputs
