"""
The language model itself, without AllenNLP. Start with `model.py`, then `options.py`, `bilstm.py`
and `lstm.py`. `kernels/` makes it fast, and can be skipped at first. `pretrained/checkpoints/`
reads and writes its files.
"""
