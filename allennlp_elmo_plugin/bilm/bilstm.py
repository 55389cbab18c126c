"""
The LSTM layers of both directions of the language model.
"""

import copy
import functools
from typing import Dict, List, Optional, Sequence, Tuple

import torch

from allennlp_elmo_plugin.bilm.carried_state import ZERO_STATE, CarriedState
from allennlp_elmo_plugin.bilm.kernels.model_call import check_layers, needs_grad
from allennlp_elmo_plugin.bilm.kernels.side_by_side import may_run_side_by_side, run_side_by_side
from allennlp_elmo_plugin.bilm.lstm import LstmState, ProjectedLstm, run_in_step
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.packing import PackedBatch

# Multiplications of a step of a layer in float32 from which each direction runs in a thread of its
# own. On a quiet machine that is about as fast as both together, beside a busy process twice.
_WORTH_THREADS = 2**24


class BiLstm(torch.nn.Module):
    """
    The LSTM layers of both directions of a biLM. The directions share nothing: each has its own
    layers, inputs and state. Layers are named `forward_layer_k` and `backward_layer_k`, and sizes
    `input_size`, `hidden_size`, `cell_size` and `num_layers`, as in AllenNLP's `ElmoLstm`. See
    `BiLm` for the parameters.
    """

    def __init__(
        self, options: BiLmOptions, forget_bias: float = 1.0, device: Optional[str] = None
    ) -> None:
        super().__init__()
        self.n_layers = self.num_layers = options.n_layers
        self.input_size = self.hidden_size = options.projection_dim
        self.cell_size = options.lstm_dim
        self.directions = options.directions
        self.use_skip_connections = options.use_skip_connections
        self.dropout = torch.nn.Dropout(options.dropout)
        # Whether all words of a row have the same mask of dropout, and the dropout of the weights
        # that the recurrence multiplies with. See `BidirectionalLanguageModel`.
        self.variational_dropout = False
        self.recurrent_dropout = 0.0
        # Whether calls of the biLM start from the state that the last one left, and that state.
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
    def forward_layers(self) -> List[ProjectedLstm]:
        return [self.layer("forward", index) for index in range(self.n_layers)]

    @property
    def backward_layers(self) -> List[ProjectedLstm]:
        return [self.layer("backward", index) for index in range(self.n_layers)]

    @property
    def weights(self) -> List[torch.Tensor]:
        """
        See `ProjectedLstm.weights`.
        """
        check_layers(self, ProjectedLstm, type(self.dropout))
        return [weight for lstm in self._lstms for weight in lstm.weights]

    @property
    def _lstms(self) -> List[ProjectedLstm]:
        return [self.layer(key, k) for key in self.directions for k in range(self.n_layers)]

    def reset_states(self, mask: Optional[torch.Tensor] = None) -> None:
        """
        Forget the carried states; see `CarriedState.reset`.
        """
        self.carried.reset(mask)

    @property
    def _states(self) -> Optional[List[torch.Tensor]]:
        """
        The carried states by the name and in the shapes of AllenNLP's `ElmoLstm`: outputs, shape
        `(n_layers, n_rows, n_directions * projection_dim)`, and memories, shape `(n_layers, n_rows,
        n_directions * dim)`; `None` before the first batch. They can be set, and read as a copy.
        Some programs assign to the elements of what they read, so it is a list.
        """
        states = self.carried._states
        if not states:
            return None
        return [
            torch.stack(
                [
                    torch.cat([states[direction, index][part] for direction in self.directions], 1)
                    for index in range(self.n_layers)
                ]
            )
            for part in range(2)
        ]

    @_states.setter
    def _states(self, states: Optional[Sequence[torch.Tensor]]) -> None:
        if states is None:
            self.carried.reset()
            return
        outputs, memories = (part.detach().chunk(len(self.directions), 2) for part in states)
        self.carried.load_state_dict(
            {
                (direction, index): (output[index], memory[index])
                for direction, output, memory in zip(self.directions, outputs, memories)
                for index in range(self.n_layers)
            }
        )

    def start(self) -> CarriedState:
        """
        Return the state that sentences start from unless a call is given another: what the last
        call left if the module is `stateful`, else zeros.
        """
        if not self.stateful:
            return ZERO_STATE
        # `DataParallel` forgets what a replica writes to its attributes.
        return copy.copy(self.carried) if getattr(self, "_is_replica", False) else self.carried

    def forward(
        self,
        inputs: Dict[str, torch.Tensor],
        packings: Dict[str, PackedBatch],
        carried: Optional[CarriedState] = None,
    ) -> Dict[str, List[torch.Tensor]]:
        """
        # Parameters

        inputs : `Dict[str, torch.Tensor]`
            For each direction the token vectors it reads, packed, shape `(n_tokens,
            projection_dim)`.
        packings : `Dict[str, PackedBatch]`
            For each direction the index of its batch.
        carried : `CarriedState`, optional (default = `start()`)
            Where to start, and where to leave the state in the end.

        # Returns

        `Dict[str, List[torch.Tensor]]`
            For each direction the output of each layer, shape `(n_tokens, projection_dim)`.
        """
        with (self.start() if carried is None else carried).update() as states:
            first = packings[self.directions[0]]
            if (
                first.n_tokens
                and not needs_grad(*inputs.values(), *self.weights)
                and all(packing is first for packing in packings.values())
                and not (self.dropout.training and self.dropout.p)
            ):
                return self._run_without_grad(inputs, first, states)
            return {
                key: self._run(key, inputs[key], packings[key], states) for key in self.directions
            }

    def drop(self, vectors: torch.Tensor, packing: PackedBatch) -> torch.Tensor:
        """
        Return packed vectors, shape `(n_tokens, projection_dim)`, after the dropout of training.
        """
        if not (self.variational_dropout and self.training):
            return self.dropout(vectors)
        # (batch_size, projection_dim)
        mask = self.dropout(vectors.new_ones(packing.batch_size, vectors.size(1)))
        return vectors * mask.index_select(0, packing.row)

    def _run(
        self,
        direction: str,
        vectors: torch.Tensor,
        packing: PackedBatch,
        carried: CarriedState,
    ) -> List[torch.Tensor]:
        """
        Run the layers of one direction.
        """
        if packing.n_tokens == 0:
            return [vectors] * self.n_layers
        outputs = []
        for index in range(self.n_layers):
            vectors = self.drop(vectors, packing)  # (n_tokens, projection_dim)
            state = self._read(carried, (direction, index), vectors, packing)
            layer = self.layer(direction, index)
            output, state = layer(vectors, packing, state, self.recurrent_dropout)
            carried.write((direction, index), packing, state)
            vectors = self._connect(index, vectors, output)
            outputs.append(vectors)
        return outputs

    def _read(
        self, carried: CarriedState, key: Tuple[str, int], like: torch.Tensor, packing: PackedBatch
    ) -> LstmState:
        """
        Return the state that (direction, layer) starts from, of the type and device of `like`.
        """
        zero = self.layer(*key).zero_state(packing.order.size(0), like)
        return carried.read(key, packing, zero)

    def _run_without_grad(
        self,
        inputs: Dict[str, torch.Tensor],
        packing: PackedBatch,
        carried: CarriedState,
    ) -> Dict[str, List[torch.Tensor]]:
        """
        Run both directions at the same time, where they read the same sentences and no gradient is
        needed.
        """
        keys = [(direction, index) for index in range(self.n_layers) for direction in inputs]
        states = {key: self._read(carried, key, inputs[key[0]], packing) for key in keys}
        groups = [inputs]
        if self._are_worth_threads(packing):
            groups = [{direction: vectors} for direction, vectors in inputs.items()]
        calls = [functools.partial(self._run_in_step, each, packing, states) for each in groups]
        results = run_side_by_side(calls) if len(calls) > 1 else [calls[0]()]
        outputs: Dict[str, List[torch.Tensor]] = {}
        finals: Dict[Tuple[str, int], LstmState] = {}
        for some_outputs, some_finals in results:
            outputs.update(some_outputs)
            finals.update(some_finals)
        for key in keys:
            carried.write(key, packing, finals[key])
        return outputs

    def _are_worth_threads(self, packing: PackedBatch) -> bool:
        """
        Return whether each direction runs in a thread of its own: if a step has so many
        multiplications.
        """
        if len(self.directions) < 2:
            return False
        lstm = self.layer(self.directions[0], 0)
        n_multiplications = sum(weight.numel() for weight in lstm.weights)  # of a row
        if lstm.precision != "float32":
            n_multiplications //= 2  # which take half of the time
        rows_of_a_step = packing.n_tokens / len(packing.batch_sizes)  # in the mean
        return rows_of_a_step * n_multiplications >= _WORTH_THREADS and may_run_side_by_side(
            packing.row.device
        )

    def _run_in_step(
        self,
        inputs: Dict[str, torch.Tensor],
        packing: PackedBatch,
        states: Dict[Tuple[str, int], LstmState],
    ) -> Tuple[Dict[str, List[torch.Tensor]], Dict[Tuple[str, int], LstmState]]:
        """
        Run these directions step by step together, from the states of (direction, layer). Return
        the outputs of each direction's layers, and the states at the end.
        """
        vectors = list(inputs.values())
        outputs: Dict[str, List[torch.Tensor]] = {direction: [] for direction in inputs}
        finals: Dict[Tuple[str, int], LstmState] = {}
        for index in range(self.n_layers):
            keys = [(direction, index) for direction in inputs]
            lstms = [self.layer(*key) for key in keys]
            befores = [states[key] for key in keys]
            results = run_in_step(lstms, vectors, packing.batch_sizes, befores)
            for i, (key, (output, memory)) in enumerate(zip(keys, results)):
                finals[key] = output[packing.last], memory
                vectors[i] = self._connect(index, vectors[i], output)
                outputs[key[0]].append(vectors[i])
        return outputs, finals

    def _connect(self, index: int, vectors: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        # The skip connection adds the input as the layer saw it, dropout included.
        return output + vectors if self.use_skip_connections and index > 0 else output
