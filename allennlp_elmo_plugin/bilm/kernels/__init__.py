"""
What makes the language model fast without changing its numbers: matrix products, and values kept
from one call to the next. `model_call.py` is the frame of each call.
"""
