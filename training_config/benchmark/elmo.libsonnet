// ELMo for the benchmark: sentences start from the settled state, so that their vectors are always
// the same and are computed once.
(import '../elmo.libsonnet') { initial_state:: 'settled' }
