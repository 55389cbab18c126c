local elmo = (import 'elmo.libsonnet') { dropout:: 0.5 };

elmo.added_to(import 'imdb.jsonnet', encoder='seq2seq_encoder')
