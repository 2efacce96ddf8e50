"""How fast this machine trains and ranks, and how near that is to its bare matrix products."""

import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from puda import native
from puda.config import Config
from puda.data.graph import KnowledgeGraph
from puda.errors import PudaError
from puda.evaluation.ranking import rank
from puda.runs import Trained
from puda.seeds import stream
from puda.training.batches import Batches
from puda.training.build import build_learner
from puda.training.step import train_step
from puda.types import Questions

Figures = dict[str, Any]

WARM_UP = 3  # steps before the clock runs
HEIGHT, WIDTH = 512, 2048  # of the tiles of bare products that fill a core's cache best


def timed(action: Callable[[], object]) -> float:
    """Return the seconds that something takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def time_training(graph: KnowledgeGraph, config: Config, *, steps: int) -> Figures:
    """Time steps, each beside its bare matrix products: scores, and their gradients both ways."""
    learner, batches = build_learner(graph, config), Batches(graph, config.training)
    learner.model.train()
    draws, spent, bare = stream(0, "bench"), [], []
    pool, invented = config.sampler.num_unlabeled, 0
    if learner.adversary is not None:
        invented = learner.adversary.num_synthetic
    size = min(config.training.batch_size, len(batches.questions))
    products = _bare_products(size, pool + invented, learner.model.row_dim)
    for done, batch in enumerate(batches.of_epoch(stream(0, "order"))):
        if done == WARM_UP + steps:
            break
        seconds = timed(lambda batch=batch: train_step(learner, batch, draws))  # type: ignore[misc]
        beside = timed(products)
        if done >= WARM_UP:
            spent.append(seconds)
            bare.append(beside)
    if not spent:
        raise PudaError(f"fewer than {WARM_UP + 1} steps in an epoch: lower training.batch_size")
    operations = 6 * size * (pool + invented) * learner.model.row_dim
    step, least = statistics.median(spent), statistics.median(bare)
    return {
        "step_ms": 1000 * step,
        "epoch_seconds": statistics.mean(spent) * len(batches),
        "products_epoch_seconds": statistics.mean(bare) * len(batches),
        "times_bare_products": step / least,
        "gflops_bare": operations / least / 1e9,
        "gflops_reached": operations / step / 1e9,
        "pairs_per_fact": 2 * (pool + invented),
    }


def _bare_products(questions: int, candidates: int, dim: int) -> Callable[[], None]:
    """Return the three products of a step, on memory of their own that is used again and again."""
    question, rows = torch.randn(questions, dim), torch.randn(candidates, dim)
    scores, to_question, to_rows = question @ rows.T, question.clone(), rows.clone()

    def products() -> None:
        torch.mm(question, rows.T, out=scores)
        torch.mm(scores, rows, out=to_question)
        torch.mm(scores.T, question, out=to_rows)

    return products


def time_evaluation(graph: KnowledgeGraph, config: Config, *, rounds: int = 3) -> Figures:
    """Time the filtered ranking of all test facts, beside its bare matrix products."""
    learner = build_learner(graph, config)
    trained = Trained(config, graph, learner.model.eval(), learner.entities.weight)
    known = graph.known("train", "valid", "test")
    questions, _ = Questions.both(torch.tensor(graph.test))
    keys = known.key(questions.anchor.numpy(), questions.relation.numpy(), questions.side.numpy())
    distinct, dim = len(np.unique(keys)), learner.model.row_dim
    asked, tile = torch.randn(HEIGHT, dim), torch.empty(HEIGHT, WIDTH)

    def products() -> None:
        for _ in range(0, distinct, HEIGHT):
            for start in range(0, graph.num_entities - WIDTH + 1, WIDTH):
                torch.mm(asked, trained.entities[start : start + WIDTH].T, out=tile)

    done = (-(-distinct // HEIGHT) * HEIGHT) * (graph.num_entities // WIDTH * WIDTH)
    share = distinct * graph.num_entities / done if done else float("nan")  # in whole tiles
    spent, bare = [], []
    for _ in range(rounds):
        spent.append(timed(lambda: rank(trained.score, graph.test, known)))
        bare.append(timed(products) * share)
    seconds, least = statistics.median(spent), statistics.median(bare)
    return {
        "seconds": seconds,
        "times_bare_products": seconds / least,
        "facts": len(graph.test),
        "distinct_questions": distinct,
    }


def peak_memory() -> float | None:
    """Return the most memory that this process has held, in megabytes; None if unknown."""
    if sys.platform == "win32":
        return None
    import resource

    unit = 1e6 if sys.platform == "darwin" else 1e3  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def machine() -> Figures:
    """Say what the figures were measured on."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "kernels": native.library is not None,
        "load_average": load,
        "torch": torch.__version__,
    }


def bench(graph: KnowledgeGraph, config: Config) -> Figures:
    """Measure training, evaluation and memory on a graph."""
    where = machine()  # first: the load average is then that of others
    training = time_training(graph, config, steps=60)
    return {
        "machine": where,
        "training": training,
        "evaluation": time_evaluation(graph, config),
        "peak_memory_mb": peak_memory(),
    }
