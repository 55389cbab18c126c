"""What `allennlp elmo-plot` draws: of training runs, a word in a text, or the words of a text."""
