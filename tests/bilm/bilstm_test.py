import pytest
import torch

from allennlp_elmo_plugin.bilm.bilstm import BiLstm
from allennlp_elmo_plugin.bilm.carried_state import CarriedState
from allennlp_elmo_plugin.bilm.options import BiLmOptions
from allennlp_elmo_plugin.bilm.packing import PackedBatch

OPTIONS = BiLmOptions.from_dict(
    {
        "n_tokens_vocab": 10,
        "bidirectional": True,
        "unroll_steps": 4,
        "lstm": {"cell_clip": 3, "dim": 6, "n_layers": 2, "proj_clip": 3, "projection_dim": 4},
    },
)
DIRECTIONS = ["forward", "backward"]


@pytest.mark.parametrize("exhausted", DIRECTIONS)
@pytest.mark.parametrize("needs_grad", [True, False])
def test_a_direction_without_tokens_leaves_the_other_alone(exhausted, needs_grad):
    torch.manual_seed(0)
    lstm = BiLstm(OPTIONS).requires_grad_(needs_grad)
    other = DIRECTIONS[1 - DIRECTIONS.index(exhausted)]
    results = []
    for lengths in ([0, 0], [3, 2]):  # of the exhausted direction
        lstm.zero_grad()
        torch.manual_seed(1)
        packings = {other: PackedBatch([4, 1], 4), exhausted: PackedBatch(lengths, 4)}
        inputs = {key: torch.randn(packing.n_tokens, 4) for key, packing in packings.items()}
        carried = CarriedState()
        outputs = lstm(inputs, packings, carried)
        if needs_grad:
            outputs[other][-1].sum().backward()
        states = carried.state_dict()
        results.append(
            [
                *outputs[other],
                *states[other, 0],
                *states[other, 1],
                *(lstm.layer(other, 0).input_linearity.weight.grad if needs_grad else []),
            ]
        )
        assert [each.shape for each in outputs[exhausted]] == [(sum(lengths), 4)] * 2
        assert ((exhausted, 0) in states) == bool(sum(lengths))
    for left, right in zip(*results):
        assert torch.equal(left, right)
    assert results[0][0].abs().sum() > 0
