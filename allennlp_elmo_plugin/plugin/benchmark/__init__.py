"""Compare task models with and without ELMo. Start with `run.py`, one training."""
