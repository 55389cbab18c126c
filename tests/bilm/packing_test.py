import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from allennlp_elmo_plugin.bilm.packing import PackedBatch


@pytest.mark.parametrize("strip", [0, 1])
@pytest.mark.parametrize("lengths", [[3, 5, 0, 2, 1], [2], [0, 0], []])
def test_tokens_are_packed_as_by_torch_and_come_back(lengths, strip):
    tokens = torch.randn(len(lengths), 7, 2)
    packing = PackedBatch(lengths, 7)
    packed = [packing.pack(tokens), packing.pack(tokens)[packing.reversal]]
    for vectors, step in zip(packed, (1, -1)) if any(lengths) else ():
        rows = [row[:length].numpy()[::step].copy() for row, length in zip(tokens, lengths)]
        rows = [torch.from_numpy(row) for row in rows if len(row)]
        expected = pack_sequence(rows, enforce_sorted=False)
        assert torch.equal(vectors, expected.data)
        assert packing.batch_sizes == expected.batch_sizes.tolist()
        last = [rows[index][-1] for index in expected.sorted_indices]
        assert torch.equal(vectors[packing.last], torch.stack(last))
    mask = torch.zeros(len(lengths), 7 - 2 * strip, dtype=torch.bool)
    for row, length in enumerate(lengths):
        mask[row, : max(length - 2 * strip, 0)] = True
    inner = tokens[:, strip : 7 - strip] * mask.unsqueeze(-1)
    assert torch.equal(packing.unpack(packed, strip), torch.cat([inner, inner], -1))
    assert torch.equal(packing.unpack(packed[:1], strip), inner)
    assert torch.equal(packing.mask(strip), mask)
