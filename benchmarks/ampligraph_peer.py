"""AmpliGraph 2 at the same work, run by a python that has it: prints one line of JSON."""

import json
import sys
import time

import numpy as np
from ampligraph.latent_features import ScoringBasedEmbeddingModel

DIM, NEGATIVES, BATCH, BATCHES, FACTS = 256, 64, 1024, 24, 256

facts = np.load(sys.argv[1])
some = np.random.default_rng(0).permutation(facts["train"])[: BATCH * BATCHES].astype(str)
model = ScoringBasedEmbeddingModel(k=DIM, eta=NEGATIVES, scoring_type="DistMult")
model.compile(optimizer="adam", loss="multiclass_nll")
model.fit(some, batch_size=BATCH, epochs=1, verbose=False)  # to warm up, and to see the entities
start = time.perf_counter()
model.fit(some, batch_size=BATCH, epochs=2, initial_epoch=1, verbose=False)
training = time.perf_counter() - start
seen = set(some[:, 0]) | set(some[:, 2])
ranked = [x for x in facts["test"].astype(str) if x[0] in seen and x[2] in seen][:FACTS]
start = time.perf_counter()
model.evaluate(
    np.array(ranked),
    use_filter={"train": some, "test": np.array(ranked)},
    corrupt_side="s,o",
    batch_size=32,
    verbose=False,
)
evaluation = time.perf_counter() - start
print(
    json.dumps(
        {
            "negatives": NEGATIVES,
            "epoch_seconds": training * len(facts["train"]) / len(some),
            "pairs_a_second": len(some) * NEGATIVES / training,
            "evaluation_seconds": evaluation * len(facts["test"]) / len(ranked),
        }
    )
)
