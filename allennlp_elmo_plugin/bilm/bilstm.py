import copy
from typing import Dict, List, Optional, Tuple

import torch

from allennlp_elmo_plugin.bilm.carried_state import CarriedState, FixedState
from allennlp_elmo_plugin.bilm.kernels.model_call import is_plain, needs_grad
from allennlp_elmo_plugin.bilm.lstm import LstmState, ProjectedLstm, run_in_step
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
    device : `str`, optional
        See `BiLm`.
    """

    def __init__(
        self, options: BiLmOptions, forget_bias: float = 1.0, device: Optional[str] = None
    ) -> None:
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
                    device,
                )
                self.add_module(f"{direction}_layer_{layer}", lstm)

    def layer(self, direction: str, index: int) -> ProjectedLstm:
        return getattr(self, f"{direction}_layer_{index}")

    @property
    def weights(self) -> List[torch.Tensor]:
        """
        See `ProjectedLstm.weights`.
        """
        return [weight for lstm in self._lstms for weight in lstm.weights]

    @property
    def has_plain_parts(self) -> bool:
        """
        Whether the layers, and what is in them, are as they were made, without hooks.
        """
        return is_plain(self.dropout, torch.nn.Dropout) and all(
            is_plain(lstm, ProjectedLstm) and lstm.has_plain_parts for lstm in self._lstms
        )

    @property
    def _lstms(self) -> List[ProjectedLstm]:
        return [self.layer(key, k) for key in self.directions for k in range(self.n_layers)]

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
        # As of all attributes, `DataParallel` forgets what a replica writes to its states.
        is_replica = getattr(self, "_is_replica", False)
        if carried is None and self.stateful:
            carried = copy.copy(self.carried) if is_replica else self.carried
        if carried is None or isinstance(carried, FixedState):
            return self._run(inputs, packings, carried)
        with carried.lock:
            # A call that fails leaves the states as they were.
            states = copy.copy(carried)
            outputs = self._run(inputs, packings, states)
            carried.take_over(states)
        return outputs

    def _run(
        self,
        inputs: Dict[str, torch.Tensor],
        packings: Dict[str, PackedBatch],
        carried: Optional[CarriedState],
    ) -> Dict[str, List[torch.Tensor]]:
        """
        `forward` from the states of `carried`, or from zero.
        """
        first = packings[self.directions[0]]
        if (
            first.n_tokens
            and all(packing is first for packing in packings.values())
            and self.has_plain_parts
            and not needs_grad(*inputs.values(), *self.weights)
        ):
            return self._run_in_step(inputs, first, carried)
        outputs: Dict[str, List[torch.Tensor]] = {}
        for direction in self.directions:
            vectors, packing = inputs[direction], packings[direction]
            if packing.n_tokens == 0:
                outputs[direction] = [vectors] * self.n_layers
                continue
            outputs[direction] = []
            for index in range(self.n_layers):
                vectors = self.dropout(vectors)  # (n_tokens, projection_dim)
                key = direction, index
                state = self._read_state(key, vectors, packing, carried)
                output, state = self.layer(*key)(vectors, packing, state)
                if carried is not None:
                    carried.write(key, packing, state)
                vectors = self._connect(index, vectors, output)
                outputs[direction].append(vectors)
        return outputs

    def _run_in_step(
        self,
        inputs: Dict[str, torch.Tensor],
        packing: PackedBatch,
        carried: Optional[CarriedState],
    ) -> Dict[str, List[torch.Tensor]]:
        """
        `forward` where no gradient is needed and both directions read the same sentences.
        """
        vectors = list(inputs.values())
        outputs: Dict[str, List[torch.Tensor]] = {direction: [] for direction in inputs}
        for index in range(self.n_layers):
            vectors = [self.dropout(each) for each in vectors]
            keys = [(direction, index) for direction in inputs]
            states = [
                self._read_state(key, each, packing, carried) for key, each in zip(keys, vectors)
            ]
            lstms = [self.layer(*key) for key in keys]
            results = run_in_step(lstms, vectors, packing.batch_sizes, states)
            for i, (key, (output, memory)) in enumerate(zip(keys, results)):
                if carried is not None:
                    state = output[packing.last], memory
                    carried.write(key, packing, state)
                vectors[i] = self._connect(index, vectors[i], output)
                outputs[key[0]].append(vectors[i])
        return outputs

    def _read_state(
        self,
        key: Tuple[str, int],
        vectors: torch.Tensor,
        packing: PackedBatch,
        carried: Optional[CarriedState],
    ) -> LstmState:
        zero = self.layer(*key).zero_state(packing.order.size(0), vectors)
        return zero if carried is None else carried.read(key, packing, zero)

    def _connect(self, index: int, vectors: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        # The skip connection takes the input as the layer saw it, dropout included.
        return output + vectors if self.use_skip_connections and index > 0 else output
