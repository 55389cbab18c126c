"""
bilm-tf in a process of its own, by the Python that has TensorFlow: it imports nothing of ours.

    python bilm_tf_process.py FOLDER TASK SETTINGS DATA THREADS

FOLDER is bilm-tf's repository, TASK a function of this file, SETTINGS a JSON file, DATA a file of
numpy with the items. For each number of an item on standard input it runs this item, and prints a
line when it is done.
"""

import json
import os
import sys

import numpy


def embedding(tf, session, settings, items):
    from bilm.model import BidirectionalLanguageModel

    ids = tf.placeholder("int32", shape=(None, None, 50))
    model = BidirectionalLanguageModel(
        settings["options_file"], settings["weight_file"], max_batch_size=items["0"].shape[0]
    )
    layers = model(ids)["lm_embeddings"]  # (batch_size, 3, timesteps, 2 * projection_dim)
    session.run(tf.global_variables_initializer())

    def run(item):
        return session.run(layers, {ids: item}).mean(1)

    return run


def training(tf, session, settings, items):
    from bilm.training import LanguageModel

    with tf.variable_scope("lm"):
        model = LanguageModel(settings, True)
        optimizer = tf.train.AdagradOptimizer(0.2, initial_accumulator_value=1.0)
        gradients = optimizer.compute_gradients(
            model.total_loss * settings["unroll_steps"],
            aggregation_method=tf.AggregationMethod.EXPERIMENTAL_TREE,
        )
        update = optimizer.apply_gradients(gradients)
    session.run(tf.global_variables_initializer())
    fetched = [model.total_loss, update, *model.final_lstm_state]
    # Sentences of the batch, words of a sentence, 50 characters; and their targets.
    placeholders = [
        model.tokens_characters,
        model.tokens_characters_reverse,
        model.next_token_id,
        model.next_token_id_reverse,
    ]
    first = items["0"]
    characters = dict.fromkeys(placeholders[:2], first[:, :, :50])
    states = session.run(model.init_lstm_state, characters)

    def run(item):
        values = [item[:, :, :50], item[:, ::-1, :50], item[:, :, 50], item[:, ::-1, 51]]
        feed = {**dict(zip(placeholders, values)), **dict(zip(model.init_lstm_state, states))}
        loss, _, *states[:] = session.run(fetched, feed)
        return loss

    return run


def main():
    folder, task, settings_file, data_file, n_threads = sys.argv[1:]
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    # bilm-tf prints its variables where the answers go.
    answers, sys.stdout = sys.stdout, sys.stderr
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    sys.modules["tensorflow"] = tf  # as bilm-tf knows it
    sys.path.insert(0, folder)
    with open(settings_file, encoding="utf-8") as file:
        settings = json.load(file)
    items = numpy.load(data_file)
    config = tf.ConfigProto(
        intra_op_parallelism_threads=int(n_threads), inter_op_parallelism_threads=int(n_threads)
    )
    with tf.Session(config=config) as session:
        run = globals()[task](tf, session, settings, items)
        for line in sys.stdin:
            result = run(items[line.strip()])
            print(f"{float(numpy.square(result).mean()):.6e}", file=answers, flush=True)


if __name__ == "__main__":
    main()
