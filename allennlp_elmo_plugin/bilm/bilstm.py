"""The LSTM layers of both directions of the language model."""

import copy
import functools
from collections.abc import Sequence
from typing import Any

import torch

from allennlp_elmo_plugin.bilm.carried_state import CarriedState, FixedState, States
from allennlp_elmo_plugin.bilm.lstm import ProjectedLstm, run_layers
from allennlp_elmo_plugin.bilm.model_call import (
    check_layers,
    lasting_tensors,
    model_call,
    needs_grad,
)
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.packing import PackedBatch
from allennlp_elmo_plugin.bilm.parallel import run_in_parallel

# From this many multiplications in a step of a layer, each direction has its own thread. That is
# about as fast as both together on a quiet machine, and twice as fast beside a busy process.
WORTH_THREADS = 2**24
# Below this many, one thread computes all: several of torch's would wait for each other.
_FEW_MULTIPLICATIONS = 2**23


class BiLstm(torch.nn.Module):
    """The LSTM layers of both directions, with AllenNLP's names. See `BiLm` for the parameters."""

    def __init__(
        self, options: BiLmOptions, forget_bias: float = 1.0, device: str | None = None
    ) -> None:
        super().__init__()
        self.num_layers = options.n_layers
        self.input_size = self.hidden_size = options.projection_dim
        self.cell_size = options.lstm_dim
        self.directions = options.directions
        self.use_skip_connections = options.use_skip_connections
        self.dropout = torch.nn.Dropout(options.dropout)
        # See `LanguageModel`.
        self.variational_dropout = False
        self.recurrent_dropout = 0.0
        # Whether calls of the biLM start from the state that the last call left, and that state
        self.stateful = False
        self.carried = CarriedState()
        for layer in range(options.n_layers):
            for direction in self.directions:
                lstm = ProjectedLstm(options, forget_bias, device)
                self.add_module(f"{direction}_layer_{layer}", lstm)

    def layer(self, direction: str, index: int) -> ProjectedLstm:
        return getattr(self, f"{direction}_layer_{index}")

    @property
    def forward_layers(self) -> list[ProjectedLstm]:
        return [self.layer("forward", index) for index in range(self.num_layers)]

    @property
    def backward_layers(self) -> list[ProjectedLstm]:
        return [self.layer("backward", index) for index in range(self.num_layers)]

    @property
    def weights(self) -> list[torch.Tensor]:
        lstms = (layer for layer in self.children() if isinstance(layer, ProjectedLstm))
        return [weight for lstm in lstms for weight in lstm.weights]

    def reset_states(self, mask: torch.Tensor | None = None) -> None:
        self.carried.reset(mask)

    @property
    def _states(self) -> States | None:
        """The carried states, as in AllenNLP's `ElmoLstm`: the next call reads changes in place."""
        return self.carried.states

    @_states.setter
    def _states(self, states: Sequence[torch.Tensor] | None) -> None:
        # As a list, one of which a program may replace: flair moves states between devices.
        own: Any = None if states is None else [state.detach() for state in states]
        self.carried.states = own

    def start(self) -> CarriedState:
        """Return what sentences start from by default: the carried state if `stateful`, or zero."""
        if not self.stateful:
            return FixedState()
        # `DataParallel` drops what a replica writes to its attributes.
        return copy.copy(self.carried) if getattr(self, "_is_replica", False) else self.carried

    @model_call
    def forward(
        self, inputs: torch.Tensor, mask: torch.Tensor, carried: CarriedState | None = None
    ) -> torch.Tensor:
        """
        Like AllenNLP's `ElmoLstm`, return all layers, shape `(n_layers, batch_size, timesteps,
        n_directions * projection_dim)`, from vectors, shape `(batch_size, timesteps,
        projection_dim)`, and their mask, shape `(batch_size, timesteps)`. See `run`, which the
        language model calls unless this module has a hook.
        """
        packing = PackedBatch(mask.sum(1).tolist(), mask.size(1), mask.device)
        packed = {"forward": packing.pack(inputs)}  # (n_tokens, projection_dim)
        if "backward" in self.directions:
            packed["backward"] = packed["forward"].index_select(0, packing.reversal)
        layers = self.run(packed, dict.fromkeys(packed, packing), carried)
        return torch.stack([packing.unpack(directions) for directions in zip(*layers.values())])

    def run(
        self,
        inputs: dict[str, torch.Tensor],
        packings: dict[str, PackedBatch],
        carried: CarriedState | None = None,
    ) -> dict[str, list[torch.Tensor]]:
        """
        Return the output of each layer for packed token vectors, shape `(n_tokens, projection_dim)`
        each. The layers start from `carried`, by default `start()`, and update it.
        """
        check_layers(self, ProjectedLstm, torch.nn.Linear, type(self.dropout))
        vectors, packing = inputs[self.directions[0]], packings[self.directions[0]]
        carried = self.start() if carried is None else carried
        shape = self.num_layers, packing.batch_size
        with lasting_tensors():
            outputs, cells = (
                vectors.new_zeros(*shape, len(self.directions) * dim)
                for dim in (self.hidden_size, self.cell_size)
            )
        states = carried.read((outputs, cells))
        # Directions with the same lengths run step by step together. Without a kernel for that, a
        # call that needs gradients or random numbers runs them apart.
        needs_order = needs_grad(*inputs.values(), *self.weights) or bool(
            self.dropout.training and self.dropout.p
        )
        trains_together = self.layer(self.directions[0], 0).kernel.TRAINS_TOGETHER
        are_apart = any(other is not packing for other in packings.values()) or (
            needs_order and not trains_together
        )
        n_multiplications = self._multiplications_of_step(packing)
        # With more than three threads of torch, both directions together use more cores.
        in_threads = (
            not are_apart
            and n_multiplications >= WORTH_THREADS
            and len(self.directions) == 2
            and torch.get_num_threads() in (2, 3)
        )
        in_one_thread = (
            not needs_order
            and 0 < n_multiplications < _FEW_MULTIPLICATIONS
            and torch.get_num_threads() > 1
        )
        groups = [self.directions]
        if are_apart or in_threads:
            groups = [[direction] for direction in self.directions]
        calls = [functools.partial(self._run, group, inputs, packings, states) for group in groups]
        if in_threads:
            results = run_in_parallel(calls)
        elif in_one_thread:
            (results,) = run_in_parallel([lambda: [call() for call in calls]])
        else:
            results = [call() for call in calls]
        layers: dict[str, list[torch.Tensor]] = {}
        for group, (of_group, last_states) in zip(groups, results):
            layers.update(zip(group, of_group))
            for state, last in zip(states, last_states):
                rows = self.part(state, group)  # (n_directions, n_layers, n_rows, dim)
                rows.index_copy_(2, packings[group[0]].order, torch.stack(last, 1))
        carried.write(states)
        return layers

    def _multiplications_of_step(self, packing: PackedBatch) -> float:
        """Return how many multiplications a step of a layer has on the CPU, on average."""
        if packing.row.device.type != "cpu" or not packing.n_tokens:
            return 0
        lstm = self.layer(self.directions[0], 0)
        n_multiplications = sum(weight.numel() for weight in lstm.weights)  # for each row
        if lstm.precision != "float32":
            n_multiplications //= 2  # since each takes half the time
        mean_rows = packing.n_tokens / len(packing.batch_sizes)  # of a step
        return mean_rows * n_multiplications

    def drop(self, vectors: torch.Tensor, packing: PackedBatch) -> torch.Tensor:
        """Apply dropout to packed vectors, shape `(n_tokens, projection_dim)`, in training."""
        if not (self.variational_dropout and self.training):
            return self.dropout(vectors)
        # (batch_size, projection_dim)
        mask = self.dropout(vectors.new_ones(packing.batch_size, vectors.size(1)))
        return vectors * mask.index_select(0, packing.row)

    def _run(
        self,
        directions: Sequence[str],
        inputs: dict[str, torch.Tensor],
        packings: dict[str, PackedBatch],
        states: States,
    ) -> tuple[list[list[torch.Tensor]], Sequence[list[torch.Tensor]]]:
        """
        Return each direction's outputs by layer; and the outputs and the cells after the sequences'
        ends, by layer, shape `(n_directions, n_sequences, dim)` each.
        """
        packing = packings[directions[0]]
        vectors = [inputs[direction] for direction in directions]
        if not packing.n_tokens:
            return [[rows] * self.num_layers for rows in vectors], ()
        starts = [self.part(state, directions).index_select(2, packing.order) for state in states]
        results: list[list[torch.Tensor]] = [[] for _ in directions]
        last_states: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
        for index in range(self.num_layers):
            vectors = [self.drop(rows, packing) for rows in vectors]
            lstms = [self.layer(direction, index) for direction in directions]
            start = starts[0][:, index], starts[1][:, index]
            outputs, last = run_layers(lstms, vectors, packing, start, self.recurrent_dropout)
            if self.use_skip_connections and index > 0:
                # Plus the layer's input after dropout
                outputs = [output + rows for output, rows in zip(outputs, vectors)]
            for of_direction, output in zip(results, outputs):
                of_direction.append(output)
            for of_layers, state in zip(last_states, last):
                of_layers.append(state)
            vectors = list(outputs)
        return results, last_states

    def part(self, state: torch.Tensor, directions: Sequence[str]) -> torch.Tensor:
        """Return a view of directions' states, shape `(n_directions, n_layers, n_rows, dim)`."""
        all_directions = state.unflatten(2, (len(self.directions), -1)).permute(2, 0, 1, 3)
        return all_directions[self.directions.index(directions[0]) :][: len(directions)]
