"""
What makes the language model fast without changing its numbers: `matrix_product.py`, `linear.py`
and `gradients.py`; values kept from call to call, in `cached_value.py` and `word_cache.py`.
`model_call.py` surrounds each call of the model.
"""
