// What the configurations of pretraining have in common: the data, and the training of bilm-tf.
//
// Where the data are is said by environment variables, so that no configuration needs editing:
//   TRAIN_DATA_PATH       tokenised text, one sentence a line: a file, a folder of files or a
//                         glob, plain or gzip
//   VALIDATION_DATA_PATH  the same, held out from training
//   VOCABULARY_PATH       the folder that `allennlp elmo-vocab` wrote, or `vocabulary` in it
//
// Everything else can be overridden on the command line, for instance
//   -o '{"trainer.num_epochs": 1, "model.num_samples": 4096}'
// A GPU is used when there is one.

{
  // `options` are the keys of options.json. A batch has `batch_size` rows of `num_steps` words.
  config(options, num_samples, batch_size=128, num_steps=20, num_epochs=10):: {
    local reader = {
      type: 'truncated_bptt_lm',
      batch_size: batch_size,
      num_steps: num_steps,
      max_characters_per_token: if std.objectHas(options, 'char_cnn') then 50 else null,
    },
    dataset_reader: reader { shuffle_sentences: true },
    // Every word counts once.
    validation_dataset_reader: reader { drop_last: false },
    train_data_path: std.extVar('TRAIN_DATA_PATH'),
    validation_data_path: std.extVar('VALIDATION_DATA_PATH'),
    vocabulary: { type: 'from_files', directory: std.extVar('VOCABULARY_PATH') },
    model: {
      type: 'bidirectional_lm',
      options: options,
      // Negative samples for a direction and batch, fewer than the vocabulary has words; 0 for the
      // full softmax, which suits small vocabularies; 'auto' for 8192 from 16,384 words on, else 0.
      num_samples: num_samples,
    },
    data_loader: { type: 'truncated_bptt' },
    // Its settings are those of `training` in sizes.json. By default: Adagrad, as in bilm-tf.
    trainer: { type: 'language_model', num_epochs: num_epochs },
  },

  // A size in sizes.json, which `elmo-train --size` reads, too.
  size(name)::
    local size = (import 'sizes.json')[name];
    local contiguous = { [key]: true for key in ['contiguous'] if std.get(size.text, key, false) };
    self.config(size.model.options, num_samples=0) + {
      dataset_reader+: size.text,
      validation_dataset_reader+: {
        batch_size: size.text.batch_size,
        num_steps: size.text.num_steps,
      } + contiguous + size.validation,
      model+: size.model,
      trainer+: size.training,
    },

  // The published models: characters, two layers with a skip connection, clipped.
  options(lstm_dim, projection_dim, n_highway):: {
    bidirectional: true,
    char_cnn: {
      activation: 'relu',
      embedding: { dim: 16 },
      filters: [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
      max_characters_per_token: 50,
      n_characters: 262,
      n_highway: n_highway,
    },
    dropout: 0.1,
    lstm: {
      cell_clip: 3,
      dim: lstm_dim,
      n_layers: 2,
      proj_clip: 3,
      projection_dim: projection_dim,
      use_skip_connections: true,
    },
  },
}
