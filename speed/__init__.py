"""How fast this package is, beside AllenNLP's own modules; see docs/speed.md."""
