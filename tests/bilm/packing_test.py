import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from allennlp_elmo_plugin.bilm.packing import PackedBatch


@pytest.mark.parametrize("lengths", [[3, 5, 1, 5], [2], [0, 4, 0, 1], [0, 0], []])
def test_is_torchs_packed_sequence_in_both_directions(lengths):
    timesteps = 6
    tokens = torch.randn(len(lengths), timesteps, 3)
    packing = PackedBatch(lengths, timesteps)
    assert packing.n_tokens == sum(lengths)
    valid = [row for row, length in enumerate(lengths) if length]
    if valid:
        for backward in (False, True):
            read = tokens.clone()
            for row, length in enumerate(lengths):
                if backward:
                    read[row, :length] = read[row, :length].flip(0)
            expected = pack_padded_sequence(
                read[valid],
                torch.tensor([lengths[row] for row in valid]),
                batch_first=True,
                enforce_sorted=False,
            )
            assert packing.batch_sizes == expected.batch_sizes.tolist()
            packed = packing.pack(tokens)[packing.reversal if backward else slice(None)]
            # Sequences of one length may stand in another order there.
            assert torch.allclose(packed.sum(0), expected.data.sum(0))
            for index, row in enumerate(packing.order.tolist()):
                step = 0 if backward else lengths[row] - 1
                last = packed[packing.last[index]]
                assert torch.equal(last, tokens[row, step])


@pytest.mark.parametrize("strip", [0, 1])
def test_unpack_puts_tokens_back(strip):
    lengths, timesteps = [3, 5, 0, 2, 1], 7
    tokens = torch.randn(5, timesteps, 2)
    packing = PackedBatch(lengths, timesteps)
    packed = [packing.pack(tokens), packing.pack(tokens)[packing.reversal]]
    mask = torch.zeros(5, timesteps - 2 * strip, dtype=torch.bool)
    for row, length in enumerate(lengths):
        mask[row, : max(length - 2 * strip, 0)] = True
    inner = tokens[:, strip : timesteps - strip] * mask.unsqueeze(-1)
    assert torch.equal(packing.unpack(packed, strip), torch.cat([inner, inner], -1))
    assert torch.equal(packing.unpack(packed[:1], strip), inner)
    assert torch.equal(packing.mask(strip), mask)
