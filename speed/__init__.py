"""Speed side by side with AllenNLP's modules. `make speed` measures everything."""
