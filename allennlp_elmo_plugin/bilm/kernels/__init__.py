"""
What makes the language model fast without changing its numbers: matrix products
(`matrix_product.py`), gradients (`gradients.py`), values kept from call to call
(`cached_value.py`), and a thread for each direction (`parallel.py`).
"""
