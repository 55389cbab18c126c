// Question answering, SQuAD 1.1: BiDAF (Seo et al. 2017). The baseline of bidaf_elmo.jsonnet.
//
// Paper: F1 81.1 on the test set (Peters et al. 2018, table 1).
// AllenNLP: EM 66, F1 76 on the validation set (model card `rc-bidaf` of allennlp-models).
// Differs: their baseline is Clark and Gardner's model, which adds self-attention among others;
//   this is AllenNLP's `bidaf`, the plain model, so its score is not comparable to theirs.
// Score, hardware, time: not measured. docs/results.md has small data.
// Data: SQUAD_TRAIN_DATA_PATH, SQUAD_VALIDATION_DATA_PATH (default: the public ones, 1.1), GLOVE
//   (optional: glove.6B.100d). The tokenizer is AllenNLP's letters-and-digits one, which needs no
//   download.
// Metric: `em` and `f1` of the official script.
local data = import '../data.libsonnet';
local lstm(input_size, hidden_size=100, num_layers=1) = {
  type: 'lstm',
  bidirectional: true,
  input_size: input_size,
  hidden_size: hidden_size,
  num_layers: num_layers,
  dropout: if num_layers > 1 then 0.2 else 0.0,
};

{
  dataset_reader: {
    type: 'squad1',
    tokenizer: { type: 'letters_digits' },
    token_indexers: {
      tokens: { type: 'single_id', lowercase_tokens: true },
      token_characters: {
        type: 'characters',
        character_tokenizer: { byte_encoding: 'utf-8', start_tokens: [259], end_tokens: [260] },
        min_padding_length: 5,
      },
    },
  },
  train_data_path: data.public('SQUAD_TRAIN_DATA_PATH', 'squad/squad-train-v1.1.json'),
  validation_data_path: data.public('SQUAD_VALIDATION_DATA_PATH', 'squad/squad-dev-v1.1.json'),
  model: {
    type: 'bidaf',
    text_field_embedder: {
      token_embedders: {
        tokens: data.word_vectors(100, trainable=false),
        token_characters: {
          type: 'character_encoding',
          embedding: { num_embeddings: 262, embedding_dim: 16 },
          encoder: {
            type: 'cnn',
            embedding_dim: 16,
            num_filters: 100,
            ngram_filter_sizes: [5],
          },
          dropout: 0.2,
        },
      },
    },
    num_highway_layers: 2,
    phrase_layer: lstm(200),
    matrix_attention: { type: 'linear', combination: 'x,y,x*y', tensor_1_dim: 200, tensor_2_dim: 200 },
    modeling_layer: lstm(4 * 200, num_layers=2),
    span_end_encoder: lstm(4 * 200 + 3 * 200),
    dropout: 0.2,
  },
  data_loader: {
    batch_sampler: { type: 'bucket', sorting_keys: ['passage', 'question'], batch_size: 40 },
  },
  trainer: {
    num_epochs: 20,
    patience: 10,
    grad_norm: 5.0,
    validation_metric: '+em',
    learning_rate_scheduler: { type: 'reduce_on_plateau', factor: 0.5, mode: 'max', patience: 2 },
    optimizer: { type: 'adam', betas: [0.9, 0.9] },
  },
  evaluation: { type: 'official', task: 'squad' },
}
