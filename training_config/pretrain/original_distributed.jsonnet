// The original ELMo on three GPUs, as it was published: original.jsonnet in three processes.
//
// Reproduces: the training of bilm-tf's bin/train_elmo.py with three GPUs, each with 128 rows of
//   its own; an update averages the gradients of all 384 rows.
// Expected: as for original.jsonnet.
// Hardware and time: bilm-tf trained on three GTX 1080 for about two weeks. Not measured here; on
//   CPUs the same code was tested at a small size. docs/scaling.md has more, also on several
//   machines. For other GPUs override the numbers of the devices (-1 is a CPU process):
//   -o '{"distributed.cuda_devices": [0, 1, 2, 3]}'
// Source: Peters et al. 2018, "Deep contextualized word representations";
//   https://github.com/allenai/bilm-tf
(import 'original.jsonnet') {
  distributed: { cuda_devices: [0, 1, 2] },
}
