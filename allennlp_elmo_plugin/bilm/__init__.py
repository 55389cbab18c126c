"""
The language model itself, without AllenNLP. Start with `model.py`, then `options.py`, `bilstm.py`
and `lstm.py`. `kernels/` has what computes it fast, and can be skipped at first.
`pretrained/checkpoints/` reads and writes its files.
"""
