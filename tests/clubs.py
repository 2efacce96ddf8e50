"""A small graph whose truth is known."""

import numpy as np

from puda.data.graph import KnowledgeGraph


def clubs(seed: int = 0) -> KnowledgeGraph:
    """Persons of 6 clubs like most things of their own; `home` names the one town of each club."""
    rng = np.random.default_rng(seed)
    likes, homes = [], []
    for club in range(6):
        for i in range(12):
            homes.append((f"person {club}.{i}", "home", f"town {club}"))
            for j in range(12):
                if rng.random() < 0.8:
                    likes.append((f"person {club}.{i}", "likes", f"thing {club}.{j}"))
    rng.shuffle(likes)
    rng.shuffle(homes)
    facts = [*likes, *homes]
    held_out = {
        "valid": likes[:110] + homes[:10],
        "test": likes[110:220] + homes[10:20],
    }
    gone = {*map(tuple, held_out["valid"]), *map(tuple, held_out["test"])}
    train_facts = [tuple(fact) for fact in facts if tuple(fact) not in gone]
    return KnowledgeGraph.from_facts(
        train_facts, **{k: [tuple(f) for f in v] for k, v in held_out.items()}, name="clubs"
    )
