local elmo = (import 'elmo.libsonnet') { dropout:: 0.3 };

elmo.added_to(import 'snli.jsonnet', encoder='encoder', at_output=true) {
  model+: { projection_feedforward+: { input_dim+: 4 * elmo.dim } },
}
