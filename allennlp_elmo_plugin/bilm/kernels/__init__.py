"""
What computes the language model, with its gradients: `recurrence.py` the steps of the LSTM,
`ngrams.py` the convolutions over characters, `softmax_loss.py` the losses, `matrix_product.py` the
products. `dispatch.py` chooses Triton's kernels where a GPU runs them, which `first_use.py` tries.
"""
