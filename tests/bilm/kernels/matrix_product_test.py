from unittest.mock import Mock

import pytest
import torch

from allennlp_elmo_plugin.bilm.kernels import matrix_product as module
from allennlp_elmo_plugin.bilm.kernels.matrix_product import (
    MANY_ROWS,
    PreparedMatrix,
    has_onednn,
    matrix_product,
    padded_rows,
    weight_gradient,
)

# Rows and columns: too few for oneDNN, and enough
SHAPES = [(3, 5, 4), (20, 300, 200), (20, 200, 300)]
TOLERANCES = {torch.float64: 1e-14, torch.float32: 1e-5, torch.bfloat16: 2e-2}


def tensors(n, k, m, dtype=torch.float32):
    torch.manual_seed(n)
    return [torch.randn(*shape).to(dtype) / k**0.5 for shape in [(n, k), (k, m), (m,), (n, m)]]


def assert_product(actual, rows, matrix, *summands, rtol):
    expected = rows.double() @ matrix.double()
    for summand in summands:
        expected += summand.double()
    assert (actual.double() - expected).norm() <= rtol * expected.norm()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", list(TOLERANCES))
def test_matrix_product(shape, dtype):
    rows, matrix, bias, add = tensors(*shape, dtype=dtype)
    rtol = TOLERANCES[dtype]
    for left, right in [(rows, matrix), (rows.t().contiguous().t(), matrix.t().contiguous().t())]:
        assert matrix_product(left, right).dtype == dtype
        assert_product(matrix_product(left, right), rows, matrix, rtol=rtol)
        for summand in (bias, add):
            assert_product(matrix_product(left, right, summand), rows, matrix, summand, rtol=rtol)
        gradient = weight_gradient(matrix_product(left, right), left)
        assert gradient.is_contiguous()
        assert_product(gradient, matrix.t(), rows.t() @ rows, rtol=4 * rtol)


@pytest.mark.parametrize("with_onednn", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("precision", ["float64", "float32", "bfloat16", "int8"])
def test_prepared_matrix(monkeypatch, with_onednn, shape, precision):
    rtol = {"float64": 1e-14, "bfloat16": 1e-2, "int8": 3e-2}.get(precision, 1e-6)
    if not with_onednn:  # as without AVX-512, where bfloat16 is computed in float32
        monkeypatch.setattr(module, "has_onednn", lambda _: False)
        rtol = 1e-6 if precision == "bfloat16" else rtol
    dtype = torch.float64 if precision == "float64" else torch.float32
    rows, matrix, bias, add = tensors(*shape, dtype=dtype)
    scales = torch.arange(1.0, shape[2] + 1)
    scaled = PreparedMatrix(matrix, precision, scales), matrix * scales
    for prepared, expected in ((PreparedMatrix(matrix, precision), matrix), scaled):
        rows, bias, add = (tensor.to(prepared.dtype) for tensor in (rows, bias, add))
        assert_product(prepared.product(rows), rows, expected, rtol=rtol)
        for summand, of_one in ((bias, bias), (add, add[:1])):
            product = prepared.product(rows, summand.clone())
            assert_product(product, rows, expected, summand, rtol=rtol)
            one = prepared.product(rows[:1], of_one.clone())
            assert_product(one, rows[:1], expected, of_one, rtol=2 * rtol)
    before = set(vars(prepared))
    for n_rows in (1, 3, 20):
        prepared.product(rows[:n_rows])
    # A large matrix is held once.
    assert shape[1] == 5 or set(vars(prepared)) == before


@pytest.mark.parametrize("by", [(1.1, 1.0), (1.0, 1.1)])  # without and with a summand
def test_an_operator_with_other_results_is_not_used(by, monkeypatch):
    original = module._onednn_product
    has_onednn.cache_clear()
    monkeypatch.setattr(module, "_onednn_product", lambda *a: by[a[2] is not None] * original(*a))
    assert not has_onednn(torch.float32)
    has_onednn.cache_clear()


@pytest.mark.parametrize("error", [AttributeError, RuntimeError, TypeError])
def test_torch_without_the_operator_or_with_other_arguments(error, monkeypatch):
    rows, matrix, *_ = tensors(20, 300, 200)
    has_onednn.cache_clear()
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", Mock(side_effect=error))
    assert not has_onednn(torch.float32)
    for product in (PreparedMatrix(matrix).product(rows), matrix_product(rows, matrix)):
        assert_product(product, rows, matrix, rtol=1e-5)
    has_onednn.cache_clear()


def test_few_different_numbers_of_rows():
    """oneDNN keeps a megabyte or more for each."""
    padded = {n: len(padded_rows(torch.ones(n, 1))) for n in range(1, 3_000)}
    assert all(max(n, MANY_ROWS) <= m <= max(n + 7, n * 17 / 16) for n, m in padded.items())
    assert len(set(padded.values())) < 110
    assert padded_rows(torch.ones(3, 2))[:, 1].tolist() == [1.0] * 3 + [0.0] * 5
