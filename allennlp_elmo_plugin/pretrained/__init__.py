"""
Pretrained language models. `find.py` finds one by any of its names, `language_model.py` reads it
with its softmax and vocabulary, and `weight_file.py` writes it. `checkpoints/` reads each kind of
file.
"""
