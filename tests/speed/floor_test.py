import pytest
import torch

from allennlp_elmo_plugin.bilm.kernels.matrix_product import PreparedMatrix, matrix_product
from speed import floor as module
from speed.floor import Product


def products(run):
    with module._Record() as record:
        run()
    return dict(record.products)


def test_products_are_found_in_both_directions_of_a_gradient():
    left, right = torch.randn(5, 7, requires_grad=True), torch.randn(7, 3, requires_grad=True)
    assert products(lambda: (left @ right).sum().backward()) == {
        Product(1, 5, 7, 3, torch.float32, False): 1,
        Product(1, 5, 3, 7, torch.float32, False): 1,
        Product(1, 7, 5, 3, torch.float32, False): 1,
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_of_our_kernels(dtype):
    rows, matrix = torch.randn(64, 256).to(dtype), torch.randn(256, 512).to(dtype)
    expected = Product(1, 64, 256, 512, dtype, False)
    added = torch.zeros(64, 512, dtype=dtype)
    prepared = PreparedMatrix(matrix)
    assert products(lambda: matrix_product(rows, matrix)) == {expected: 1}
    assert products(lambda: prepared.product(rows, add=added)) == {expected: 1}
    assert products(lambda: torch.bmm(rows[None], matrix[None])) == {expected: 1}


def test_integers():
    prepared = PreparedMatrix(torch.randn(256, 512), "int8")
    prepared.product(torch.randn(1, 256))  # The first time, it tries what the processor has.
    found = products(lambda: prepared.product(torch.randn(1, 256)))
    assert found == {Product(1, 1, 256, 512, torch.float32, True): 1}


def test_the_sum_over_all_products(monkeypatch):
    monkeypatch.setattr(module, "_fastest", lambda product, _: 0.5 * product.n)
    monkeypatch.setattr(module.torch, "get_num_threads", lambda: 1)
    right = torch.randn(7, 3)

    def run():
        for n in (2, 2, 4):
            torch.randn(n, 7) @ right

    assert module.floor(100, run) == 100 / 4.0
