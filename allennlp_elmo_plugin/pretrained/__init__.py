"""
Pretrained language models: `find_model.py` finds one by any of its names, `language_model.py` reads
it with its softmax and vocabulary, `weight_file.py` writes it, `checkpoints/` reads its files.
"""
