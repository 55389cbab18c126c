"""
The language model itself: torch, numpy and h5py, nothing of AllenNLP. Start with `model.py`, then
`options.py`, `bilstm.py` and `lstm.py`. `checkpoints/` reads and writes its files; `kernels/` makes
it fast, and can be skipped at first.
"""
