"""The LSTM layers of both directions of the language model."""

import copy
import functools
from typing import Dict, List, Optional, Sequence

import torch

from allennlp_elmo_plugin.bilm.carried_state import CarriedState, FixedState, States
from allennlp_elmo_plugin.bilm.kernels.model_call import check_layers, lasting_tensors, needs_grad
from allennlp_elmo_plugin.bilm.kernels.parallel import may_run_in_parallel, run_in_parallel
from allennlp_elmo_plugin.bilm.lstm import ProjectedLstm, run_layers
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
        self.num_layers = options.n_layers
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
                lstm = ProjectedLstm(options, forget_bias, device)
                self.add_module(f"{direction}_layer_{layer}", lstm)

    def layer(self, direction: str, index: int) -> ProjectedLstm:
        return getattr(self, f"{direction}_layer_{index}")

    @property
    def forward_layers(self) -> List[ProjectedLstm]:
        return [self.layer("forward", index) for index in range(self.num_layers)]

    @property
    def backward_layers(self) -> List[ProjectedLstm]:
        return [self.layer("backward", index) for index in range(self.num_layers)]

    @property
    def weights(self) -> List[torch.Tensor]:
        """See `ProjectedLstm.weights`."""
        check_layers(self, ProjectedLstm, type(self.dropout))
        return [
            weight
            for direction in self.directions
            for index in range(self.num_layers)
            for weight in self.layer(direction, index).weights
        ]

    def reset_states(self, mask: Optional[torch.Tensor] = None) -> None:
        """Forget the carried states; see `CarriedState.reset`."""
        self.carried.reset(mask)

    @property
    def _states(self) -> Optional[List[torch.Tensor]]:
        """The carried states as in AllenNLP's `ElmoLstm`: a list of copies; see `CarriedState`."""
        states = self.carried.states
        return None if states is None else [each.clone() for each in states]

    @_states.setter
    def _states(self, states: Optional[Sequence[torch.Tensor]]) -> None:
        self.carried.states = None if states is None else (states[0].detach(), states[1].detach())

    def start(self) -> CarriedState:
        """
        Return the state that sentences start from unless a call is given another: what the last
        call left if the module is `stateful`, else zeros.
        """
        if not self.stateful:
            return FixedState()
        # `DataParallel` forgets what a replica writes to its attributes.
        return copy.copy(self.carried) if getattr(self, "_is_replica", False) else self.carried

    def forward(
        self,
        inputs: Dict[str, torch.Tensor],
        packings: Dict[str, PackedBatch],
        carried: Optional[CarriedState] = None,
    ) -> Dict[str, List[torch.Tensor]]:
        """
        Run the layers of each direction over the token vectors that it reads, packed, shape
        `(n_tokens, projection_dim)`, from the state `carried`, by default `start()`, which is
        updated. Return the output of each layer, of the same shape.
        """
        vectors, packing = inputs[self.directions[0]], packings[self.directions[0]]
        carried = self.start() if carried is None else carried
        states = carried.read(self._zeros(packing.batch_size, vectors))
        run = functools.partial(self._run, inputs, packings, states)
        each_direction = [functools.partial(run, [direction]) for direction in self.directions]
        # Directions that read the same sentences go step by step together, except where gradients
        # or random numbers are computed.
        if (
            needs_grad(*inputs.values(), *self.weights)
            or any(each is not packing for each in packings.values())
            or (self.dropout.training and self.dropout.p)
        ):
            results = [run_direction() for run_direction in each_direction]
        elif self._is_worth_threads(packing):
            results = run_in_parallel(each_direction)
        else:
            results = [run(self.directions)]
        carried.write(states)
        return {direction: layers for each in results for direction, layers in each.items()}

    def _zeros(self, n_rows: int, like: torch.Tensor) -> States:
        """Return the states that rows start from for the first time; see `CarriedState`."""
        n_directions = len(self.directions)
        with lasting_tensors():
            outputs, cells = (
                like.new_zeros(self.num_layers, n_rows, n_directions * dim)
                for dim in (self.hidden_size, self.cell_size)
            )
        return outputs, cells

    def _is_worth_threads(self, packing: PackedBatch) -> bool:
        """
        Return whether each direction runs in a thread of its own: if a step has so many
        multiplications.
        """
        if len(self.directions) < 2 or not packing.n_tokens:
            return False
        lstm = self.layer(self.directions[0], 0)
        n_multiplications = sum(weight.numel() for weight in lstm.weights)  # of a row
        if lstm.precision != "float32":
            n_multiplications //= 2  # which take half of the time
        rows_of_a_step = packing.n_tokens / len(packing.batch_sizes)  # in the mean
        return rows_of_a_step * n_multiplications >= _WORTH_THREADS and may_run_in_parallel(
            packing.row.device
        )

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
        inputs: Dict[str, torch.Tensor],
        packings: Dict[str, PackedBatch],
        states: States,
        directions: Sequence[str],
    ) -> Dict[str, List[torch.Tensor]]:
        """Run the layers of directions with the same `PackedBatch`, and update their states."""
        packing = packings[directions[0]]
        vectors = [inputs[direction] for direction in directions]
        layers = []
        for index in range(self.num_layers if packing.n_tokens else 0):
            vectors = [self.drop(each, packing) for each in vectors]
            parts = [self.part(states, direction, index) for direction in directions]
            results = run_layers(
                [self.layer(direction, index) for direction in directions],
                vectors,
                packing,
                [(part[0][packing.order], part[1][packing.order]) for part in parts],
                self.recurrent_dropout,
            )
            for part, (_, last) in zip(parts, results):
                for kept, values in zip(part, last):
                    kept.index_copy_(0, packing.order, values)
            outputs = [output for output, _ in results]  # (n_tokens, projection_dim) each
            if self.use_skip_connections and index > 0:
                # The input as the layer saw it, dropout included
                outputs = [output + each for output, each in zip(outputs, vectors)]
            layers.append(outputs)
            vectors = outputs
        if not layers:
            layers = [vectors] * self.num_layers  # without a row
        return dict(zip(directions, map(list, zip(*layers))))

    def part(self, states: States, direction: str, index: int) -> States:
        """
        Return the part of states that is a layer's: outputs, shape `(n_rows, projection_dim)`, and
        cells, shape `(n_rows, dim)`.
        """
        place = list(self.directions).index(direction)
        outputs, cells = (each[index].chunk(len(self.directions), 1)[place] for each in states)
        return outputs, cells
