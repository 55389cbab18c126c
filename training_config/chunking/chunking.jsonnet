// Chunking, CoNLL-2000: BiLSTM-CRF with a character CNN. The baseline of chunking_elmo.jsonnet.
//
// Paper: none; ELMo's paper has no chunking.
// AllenNLP: no score in the model cards of allennlp-models.
// Score, hardware, time: not measured.
// Data: CHUNKING_TRAIN_DATA_PATH, CHUNKING_VALIDATION_DATA_PATH: train.txt and test.txt of the shared
//   task (it has no validation set: cut one off the training set); GLOVE (optional: glove.6B.100d).
// Metric: `f1-measure-overall` is what conlleval counts, since decoding gives valid tags only.
local data = import '../data.libsonnet';

{
  dataset_reader: {
    type: 'conll2000',
    convert_to_coding_scheme: 'BIOUL',
    token_indexers: {
      tokens: { type: 'single_id', lowercase_tokens: true },
      token_characters: { type: 'characters', min_padding_length: 3 },
    },
  },
  train_data_path: data.path('CHUNKING_TRAIN_DATA_PATH'),
  validation_data_path: data.path('CHUNKING_VALIDATION_DATA_PATH'),
  model: {
    type: 'crf_tagger',
    label_encoding: 'BIOUL',
    dropout: 0.5,
    include_start_end_transitions: false,
    text_field_embedder: {
      token_embedders: {
        tokens: data.word_vectors(100),
        token_characters: {
          type: 'character_encoding',
          embedding: { embedding_dim: 16, vocab_namespace: 'token_characters' },
          encoder: {
            type: 'cnn',
            embedding_dim: 16,
            num_filters: 128,
            ngram_filter_sizes: [3],
            conv_layer_activation: 'relu',
          },
        },
      },
    },
    encoder: {
      type: 'lstm',
      input_size: 100 + 128,
      hidden_size: 200,
      num_layers: 2,
      dropout: 0.5,
      bidirectional: true,
    },
  },
  data_loader: { batch_size: 32, shuffle: true },
  trainer: {
    num_epochs: 75,
    patience: 10,
    grad_norm: 5.0,
    validation_metric: '+f1-measure-overall',
    optimizer: { type: 'adam', lr: 0.001 },
  },
  evaluation: { type: 'official', task: 'chunking' },
}
