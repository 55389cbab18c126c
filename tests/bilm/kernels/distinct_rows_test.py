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
