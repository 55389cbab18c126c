import pytest
import torch

from allennlp_elmo_plugin.bilm.kernels import distinct_rows as module
from allennlp_elmo_plugin.bilm.kernels.distinct_rows import distinct_rows


@pytest.mark.parametrize("collide", [False, True])
@pytest.mark.parametrize("dtype", [torch.long, torch.int32])
def test_each_row_once(collide, dtype, monkeypatch):
    if collide:
        monkeypatch.setattr(
            module, "_hash_factors", lambda n, device: torch.zeros(n, dtype=torch.long)
        )
    rows = (torch.arange(40).view(20, 2) % 6).to(dtype)
    distinct, index = distinct_rows(rows)
    assert torch.equal(distinct[index], rows)
    assert len(distinct) == len(rows.unique(dim=0)) == 3


def test_of_numbers_by_their_bits():
    rows = torch.tensor([[0.0, 1.0], [-0.0, 1.0], [float("nan"), 1.0]])[[0, 1, 2, 2, 0]]
    for width in (1, 2):  # bytes of a row: 4, 8
        distinct, index = distinct_rows(rows[:, :width].contiguous())
        assert distinct.shape == (3, width) and distinct.dtype == torch.float32
        assert torch.equal(
            distinct[index].view(torch.int32), rows[:, :width].contiguous().view(torch.int32)
        )


def test_of_numbers_in_any_layout():
    numbers = torch.randint(0, 2, (20, 9)).float()
    layouts = [numbers[:, 1:], numbers[:, :4], numbers.t()[:, 1:5], numbers[:1].expand(5, 9)]
    for rows in (*layouts, numbers.view(-1)[1:161].view(20, 8)):
        distinct, index = distinct_rows(rows)
        assert torch.equal(distinct[index], rows)
        assert len(distinct) == len(rows.unique(dim=0))
