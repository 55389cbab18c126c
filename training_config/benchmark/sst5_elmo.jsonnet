local elmo = import 'elmo.libsonnet';

elmo.reader_added_to(import 'sst5.jsonnet') {
  model+: {
    elmo: elmo.files { num_output_representations: 1 },
    use_input_elmo: true,
    pre_encode_feedforward+: { input_dim+: elmo.dim },
    regularizer: elmo.regularizer,
  },
}
