// Sentiment of film reviews in two classes, IMDB (Maas et al. 2011): a BiLSTM, pooled. The baseline
// of imdb_elmo.jsonnet.
//
// Paper: none; ELMo's paper has no IMDB.
// AllenNLP: no score in the model cards of allennlp-models.
// Score, hardware, time: not measured.
// Data: IMDB_TRAIN_DATA_PATH, IMDB_VALIDATION_DATA_PATH: JSON lines with "text" (words separated by
//   spaces) and "label"; GLOVE (optional: glove.6B.100d). scripts/imdb.py makes them from the
//   published folder.
local data = import '../data.libsonnet';

{
  dataset_reader: {
    type: 'text_classification_json',
    tokenizer: { type: 'just_spaces' },
    max_sequence_length: 400,
    token_indexers: { tokens: { type: 'single_id', lowercase_tokens: true } },
  },
  train_data_path: data.path('IMDB_TRAIN_DATA_PATH'),
  validation_data_path: data.path('IMDB_VALIDATION_DATA_PATH'),
  model: {
    type: 'basic_classifier',
    text_field_embedder: {
      token_embedders: {
        tokens: data.word_vectors(100),
      },
    },
    seq2seq_encoder: {
      type: 'lstm',
      input_size: 100,
      hidden_size: 200,
      num_layers: 1,
      bidirectional: true,
    },
    seq2vec_encoder: { type: 'boe', embedding_dim: 400, averaged: true },
    feedforward: {
      input_dim: 400,
      num_layers: 1,
      hidden_dims: 200,
      activations: 'relu',
      dropout: 0.5,
    },
    dropout: 0.5,
  },
  data_loader: {
    batch_sampler: { type: 'bucket', sorting_keys: ['tokens'], batch_size: 32 },
  },
  trainer: {
    num_epochs: 20,
    patience: 3,
    grad_norm: 5.0,
    validation_metric: '+accuracy',
    optimizer: { type: 'adam', lr: 0.001 },
  },
  evaluation: { type: 'official', task: 'imdb' },
}
