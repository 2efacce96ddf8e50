"""AmpliGraph 2 at the same work, run by a python that has it: prints one line of JSON."""

import json
import resource
import sys
import time

import numpy as np
from ampligraph.latent_features import ScoringBasedEmbeddingModel

DIM, NEGATIVES, BATCH, FACTS = 256, 64, 1024, 256

facts = {name: rows.astype(str) for name, rows in np.load(sys.argv[1]).items()}
train = facts["train"]
model = ScoringBasedEmbeddingModel(k=DIM, eta=NEGATIVES, scoring_type="DistMult")
model.compile(optimizer="adam", loss="multiclass_nll")
model.fit(train, batch_size=BATCH, epochs=1, verbose=False)  # to warm up, and to see the entities
start = time.perf_counter()
model.fit(train, batch_size=BATCH, epochs=2, initial_epoch=1, verbose=False)
training = time.perf_counter() - start
seen = set(train[:, 0]) | set(train[:, 2])
ranked = np.array([x for x in facts["test"] if x[0] in seen and x[2] in seen][:FACTS])
start = time.perf_counter()
model.evaluate(ranked, use_filter=facts, corrupt_side="s,o", batch_size=32, verbose=False)
evaluation = time.perf_counter() - start
print(
    json.dumps(
        {
            "negatives": NEGATIVES,
            "epoch_seconds": training,
            "pairs_a_second": len(train) * NEGATIVES / training,
            "evaluation_seconds": evaluation * len(facts["test"]) / len(ranked),
            "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        }
    )
)
