// Semantic role labelling, OntoNotes 5.0 (CoNLL-2012): the deep BiLSTM of He et al. (2017) as
// AllenNLP has it. The baseline of srl_elmo.jsonnet.
//
// Paper: F1 81.4 on the test set (Peters et al. 2018, table 1).
// AllenNLP: no score in the model cards of allennlp-models.
// Differs: their baseline is He et al.'s code; this is AllenNLP's model (`srl`) with the settings of
//   its own config.
// Score, hardware, time: not measured (OntoNotes is not free). docs/results.md has small data.
// Data: SRL_TRAIN_DATA_PATH, SRL_VALIDATION_DATA_PATH: folders with *.gold_conll; GLOVE (optional:
//   glove.6B.100d).
// Metric: `f1-measure-overall` is that of srl-eval.pl, which needs perl.
local data = import '../data.libsonnet';

{
  dataset_reader: {
    type: 'srl',
    token_indexers: { tokens: { type: 'single_id', lowercase_tokens: true } },
  },
  train_data_path: data.path('SRL_TRAIN_DATA_PATH'),
  validation_data_path: data.path('SRL_VALIDATION_DATA_PATH'),
  model: {
    type: 'srl',
    text_field_embedder: {
      token_embedders: {
        tokens: data.word_vectors(100),
      },
    },
    binary_feature_dim: 100,
    encoder: {
      type: 'alternating_lstm',
      input_size: 100 + $.model.binary_feature_dim,
      hidden_size: 300,
      num_layers: 8,
      recurrent_dropout_probability: 0.1,
      use_highway: true,
    },
    initializer: { regexes: [['tag_projection_layer.*weight', { type: 'orthogonal' }]] },
  },
  data_loader: {
    batch_sampler: { type: 'bucket', sorting_keys: ['tokens'], batch_size: 80 },
  },
  trainer: {
    num_epochs: 500,
    patience: 20,
    grad_clipping: 1.0,
    validation_metric: '+f1-measure-overall',
    optimizer: { type: 'adadelta', rho: 0.95 },
  },
  evaluation: { type: 'official', task: 'srl' },
}
