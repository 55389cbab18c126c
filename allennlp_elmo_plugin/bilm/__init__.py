"""
The language model itself, in torch, numpy and h5py, without AllenNLP. Start with `model.py`, then
`options.py`, `bilstm.py` and `lstm.py`. `checkpoints/` reads and writes its files; `kernels/` makes
it fast, and can be skipped at first.
"""
