// Natural language inference, SNLI: ESIM (Chen et al. 2017). The baseline of esim_elmo.jsonnet.
//
// Paper: accuracy 88.0 on the test set (Peters et al. 2018, table 1).
// AllenNLP: no score in the model cards of allennlp-models.
// Differs: AllenNLP's `esim`.
// Score, hardware, time: not measured. docs/results.md has small data.
// Data: SNLI_TRAIN_DATA_PATH, SNLI_VALIDATION_DATA_PATH (default: the public ones, SNLI 1.0), GLOVE
//   (optional: glove.840B.300d). The tokenizer is AllenNLP's letters-and-digits one, which needs no
//   download, for the training and the test.
local data = import '../data.libsonnet';
local lstm(input_size) = {
  type: 'lstm',
  input_size: input_size,
  hidden_size: 300,
  num_layers: 1,
  bidirectional: true,
};

{
  dataset_reader: {
    type: 'snli',
    tokenizer: { type: 'letters_digits' },
    token_indexers: { tokens: { type: 'single_id' } },
  },
  train_data_path: data.public('SNLI_TRAIN_DATA_PATH', 'snli/snli_1.0_train.jsonl'),
  validation_data_path: data.public('SNLI_VALIDATION_DATA_PATH', 'snli/snli_1.0_dev.jsonl'),
  model: {
    type: 'esim',
    dropout: 0.5,
    text_field_embedder: {
      token_embedders: {
        tokens: data.word_vectors(300),
      },
    },
    encoder: lstm(300),
    matrix_attention: { type: 'dot_product' },
    projection_feedforward: {
      input_dim: 4 * 600,
      hidden_dims: 300,
      num_layers: 1,
      activations: 'relu',
    },
    inference_encoder: lstm(300),
    output_feedforward: {
      input_dim: 4 * 600,
      num_layers: 1,
      hidden_dims: 300,
      activations: 'relu',
      dropout: 0.5,
    },
    output_logit: { input_dim: 300, num_layers: 1, hidden_dims: 3, activations: 'linear' },
    initializer: {
      regexes: [
        ['.*linear_layers.*weight', { type: 'xavier_uniform' }],
        ['.*linear_layers.*bias', { type: 'zero' }],
        ['.*encoder._module.weight_ih.*', { type: 'xavier_uniform' }],
        ['.*encoder._module.weight_hh.*', { type: 'orthogonal' }],
        ['.*encoder._module.bias_ih.*', { type: 'zero' }],
        ['.*encoder._module.bias_hh.*', { type: 'lstm_hidden_bias' }],
      ],
    },
  },
  data_loader: {
    batch_sampler: { type: 'bucket', sorting_keys: ['premise', 'hypothesis'], batch_size: 64 },
  },
  trainer: {
    num_epochs: 75,
    patience: 5,
    grad_norm: 10.0,
    validation_metric: '+accuracy',
    optimizer: { type: 'adam', lr: 0.0004 },
    learning_rate_scheduler: { type: 'reduce_on_plateau', factor: 0.5, mode: 'max', patience: 0 },
  },
  evaluation: { type: 'official', task: 'snli' },
}
