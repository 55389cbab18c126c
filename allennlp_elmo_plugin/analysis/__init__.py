"""
What a language model has learnt: `word_map.py` (the contexts of a word), `surprise.py` (how well it
predicts each word), `probing.py` (what each layer knows), `training_curves.py`.
"""
