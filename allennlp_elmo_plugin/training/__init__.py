"""
Training of language models in torch alone. Start with `language_model.py`, the model with its
losses; `text_batches.py` reads its text.
"""
