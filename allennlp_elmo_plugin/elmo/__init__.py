"""
ELMo for models of torch. Start with `elmo.py`, the module `Elmo`, then `elmo_bilm.py`, its language
model.
"""
