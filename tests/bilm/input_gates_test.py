import torch

from allennlp_elmo_plugin.bilm.input_gates import input_gates


def test_products_of_few_different_numbers_of_rows():
    sizes = set()

    def product(rows):
        sizes.add(len(rows))
        return rows.repeat(1, 4)

    for n in range(100, 140):
        inputs = torch.randn(n, 3)
        steps = list(input_gates(inputs, product, 3, [n - 20, 20]))
        assert torch.equal(torch.cat(steps), inputs.repeat(1, 4))
    assert len(sizes) <= 6
