"""Speed side by side with AllenNLP's modules. `make benchmark` runs all of it."""
