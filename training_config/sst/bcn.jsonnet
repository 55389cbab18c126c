// Sentiment in five classes, Stanford Sentiment Treebank: the biattentive classification network
// (McCann et al. 2017) with GloVe alone. The baseline of bcn_elmo.jsonnet.
//
// Paper: accuracy 51.4 on the test set (Peters et al. 2018, table 1), with GloVe and no CoVe.
// AllenNLP: no score in the model cards of allennlp-models.
// Differs: AllenNLP's `bcn`. Trained on phrases too, validated on sentences alone.
// Score, hardware, time: not measured. docs/results.md has a smaller model.
// Data: SST_TRAIN_DATA_PATH, SST_VALIDATION_DATA_PATH (trees; default: the public ones), GLOVE
//   (optional: glove.840B.300d).
local data = import '../data.libsonnet';
local reader(use_subtrees) = {
  type: 'sst_tokens',
  use_subtrees: use_subtrees,
  granularity: '5-class',
  token_indexers: { tokens: { type: 'single_id' } },
};
local lstm(input_size) = {
  type: 'lstm',
  input_size: input_size,
  hidden_size: 300,
  num_layers: 1,
  bidirectional: true,
};

{
  dataset_reader: reader(true),
  validation_dataset_reader: reader(false),
  train_data_path: data.public('SST_TRAIN_DATA_PATH', 'sst/train.txt'),
  validation_data_path: data.public('SST_VALIDATION_DATA_PATH', 'sst/dev.txt'),
  model: {
    type: 'bcn',
    text_field_embedder: {
      token_embedders: {
        tokens: data.word_vectors(300, trainable=false),
      },
    },
    embedding_dropout: 0.25,
    pre_encode_feedforward: {
      input_dim: 300,
      num_layers: 1,
      hidden_dims: [300],
      activations: ['relu'],
      dropout: [0.25],
    },
    encoder: lstm(300),
    integrator: lstm(3 * 600),
    integrator_dropout: 0.1,
    output_layer: {
      input_dim: 4 * 600,
      num_layers: 3,
      output_dims: [1200, 600, 5],
      pool_sizes: 4,
      dropout: [0.2, 0.3, 0.0],
    },
  },
  data_loader: {
    batch_sampler: { type: 'bucket', sorting_keys: ['tokens'], batch_size: 100 },
  },
  trainer: {
    num_epochs: 20,
    patience: 5,
    grad_norm: 5.0,
    validation_metric: '+accuracy',
    optimizer: { type: 'adam', lr: 0.001 },
  },
  evaluation: { type: 'official', task: 'sst5' },
}
