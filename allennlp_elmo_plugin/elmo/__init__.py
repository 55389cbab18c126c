"""ELMo for models of torch: start with `Elmo` in `elmo.py`, then its biLM in `elmo_bilm.py`."""
