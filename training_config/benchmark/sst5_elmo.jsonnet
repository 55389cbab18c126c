// No dropout of the representation: `embedding_dropout` of the model has it already.
local elmo = (import 'elmo.libsonnet') { dropout:: 0.0 };

elmo.reader_added_to(import 'sst5.jsonnet') {
  model+: {
    elmo: elmo.files { num_output_representations: 1 },
    use_input_elmo: true,
    pre_encode_feedforward+: { input_dim+: elmo.dim },
    regularizer: elmo.regularizer,
  },
}
