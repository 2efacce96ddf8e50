"""Scores against the papers' formulas, written out in plain loops over numbers."""

import cmath
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from puda.config import ScoringConfig
from puda.data.graph import KnowledgeGraph
from puda.scoring import ScoringFunction, build_model
from puda.scoring.conve import features
from puda.seeds import ambient
from puda.types import Questions, Side

TRIANGLE = KnowledgeGraph.from_facts(
    [("a", "knows", "b"), ("a", "knows", "c"), ("b", "knows", "c"), ("c", "likes", "a")],
    valid=[("b", "likes", "b")],
)
"""Three entities 0, 1, 2 and two relations 0, 1."""

E, R = 3, 2
Array = np.ndarray
Score = Callable[[int, int, int], float]
"""(head, relation, tail) -> score."""


def build(
    name: str, dim: int, graph: KnowledgeGraph = TRIANGLE, **options: float
) -> tuple[ScoringFunction, torch.Tensor, dict[str, Array]]:
    """Return a random model in eval mode, an entity table, and the weights as arrays of doubles."""
    with ambient(5, "formulas"), torch.no_grad():
        config = ScoringConfig(name=name, dim=dim, options=options)
        model = build_model(config, graph).double().eval()
        for weight in model.parameters():
            weight.normal_(0, 0.7)
        for norm in model.modules():
            if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
                norm.running_mean.normal_()
                norm.running_var.uniform_(0.5, 1.5)
        rows = torch.randn(graph.num_entities, model.row_dim).double()
    return model, rows, {name: value.numpy() for name, value in model.state_dict().items()}


@torch.no_grad()
def assert_formula(
    model: ScoringFunction, rows: torch.Tensor, tail: Score, head: Score | None = None
) -> None:
    """Compare all E x R x E facts by both questions; `head` scores head questions if it differs."""
    rows = model.contextualize(rows)
    expected = {Side.TAIL: tail, Side.HEAD: head or tail}
    seen = []
    for relation in range(R):
        for side in Side:
            anchor = torch.arange(E)
            asked = Questions(anchor, torch.full((E,), relation), torch.full((E,), int(side)))
            scores = model.match(model.ask(asked, rows), rows)
            for a in range(E):
                for c in range(E):
                    h, t = (a, c) if side is Side.TAIL else (c, a)
                    by_hand = expected[side](h, relation, t)
                    assert scores[a, c].item() == pytest.approx(by_hand, rel=1e-9, abs=1e-9)
                    seen.append(round(by_hand, 9))
    assert len(set(seen)) > E * R * (E - 1)  # all but loops, else the numbers would say little


def test_complex_is_the_real_part_of_h_r_and_conjugate_t():
    model, rows, weights = build("complex", 6, reciprocal=False)
    x, w = rows.numpy(), weights["relations"]

    def score(h: int, r: int, t: int) -> float:
        total = 0j
        for k in range(3):
            total += (
                complex(x[h, k], x[h, k + 3])
                * complex(w[r, k], w[r, k + 3])
                * complex(x[t, k], x[t, k + 3]).conjugate()
            )
        return total.real

    assert_formula(model, rows, score)


def test_complex_with_reciprocals_asks_for_heads_as_for_tails_of_r_plus_R():
    model, rows, weights = build("complex", 6, reciprocal=True)
    x, w = rows.numpy(), weights["relations"]

    def score(anchor: int, r: int, answer: int) -> float:
        total = 0.0
        for k in range(3):
            a_re, a_im, b_re, b_im = x[anchor, k], x[anchor, k + 3], x[answer, k], x[answer, k + 3]
            total += a_re * w[r, k] * b_re + a_im * w[r, k] * b_im
            total += a_re * w[r, k + 3] * b_im - a_im * w[r, k + 3] * b_re
        return total

    assert_formula(model, rows, score, lambda h, r, t: score(t, r + R, h))


def test_simple_is_the_mean_of_a_fact_and_its_inverse():
    model, rows, weights = build("simple", 6)
    x, w = rows.numpy(), weights["relations"]
    as_head, as_tail, forward, inverse = x[:, :3], x[:, 3:], w[:, :3], w[:, 3:]

    def score(h: int, r: int, t: int) -> float:
        total = 0.0
        for k in range(3):
            total += as_head[h, k] * forward[r, k] * as_tail[t, k]
            total += as_head[t, k] * inverse[r, k] * as_tail[h, k]
        return total / 2

    assert_formula(model, rows, score)


@pytest.mark.parametrize("squared", [False, True])
def test_rotate_is_the_margin_less_the_moduli_of_rotated_differences(squared):
    model, rows, weights = build("rotate", 6, margin=4.0, squared=squared)
    x, w = rows.numpy(), weights["relations"]

    def score(h: int, r: int, t: int) -> float:
        distance = 0.0
        for k in range(3):
            theta = math.pi * w[r, k] * 3 / (4.0 + 2)  # pi x d / (margin + 2), d complex numbers
            head, tail = complex(x[h, k], x[h, k + 3]), complex(x[t, k], x[t, k + 3])
            distance += abs(head * cmath.exp(1j * theta) - tail) ** (2 if squared else 1)
        return 4.0 - distance

    assert_formula(model, rows, score)


def test_rotate_starts_with_angles_over_the_whole_circle_and_no_further():
    with ambient(0, "start"):
        model = build_model(
            ScoringConfig(name="rotate", dim=400, options={"margin": 4.0}), TRIANGLE
        )
        rows = model.initial_entities()
    theta = model.relations * math.pi * 200 / 6
    assert math.pi * 0.9 < theta.abs().max() <= math.pi
    assert 6 / 200 * 0.9 < rows.abs().max() <= 6 / 200


@pytest.mark.parametrize("norm", [1, 2])
def test_transe_is_the_margin_less_the_norm_of_h_plus_r_minus_t(norm):
    model, rows, weights = build("transe", 5, margin=4.0, norm=norm)
    x, w = rows.numpy(), weights["relations"]

    def score(h: int, r: int, t: int) -> float:
        differences = [abs(x[h, k] + w[r, k] - x[t, k]) for k in range(5)]
        if norm == 1:
            return 4.0 - sum(differences)
        return 4.0 - math.sqrt(sum(d * d for d in differences))

    assert_formula(model, rows, score)


def test_crosse_crosses_anchor_and_relation_with_parameters_by_side():
    model, rows, weights = build("crosse", 5)
    x = rows.numpy()

    def score(anchor: int, directed: int, side: int, answer: int) -> float:
        total = 0.0
        for k in range(5):
            crossed = weights["interactions"][directed, k] * x[anchor, k]
            crossed += crossed * weights["relations"][directed, k]
            total += math.tanh(crossed + weights["bias"][side, k]) * x[answer, k]
        return total

    assert_formula(
        model, rows, lambda h, r, t: score(h, r, 0, t), lambda h, r, t: score(t, r + R, 1, h)
    )


def test_convkb_sums_weighted_feature_maps():
    model, rows, weights = build("convkb", 4, filters=3)
    x, w, filters = rows.numpy(), weights["relations"], weights["filters"]

    def score(h: int, r: int, t: int) -> float:
        total = float(weights["offset"])
        for n in range(3):
            for k in range(4):
                feature = (
                    filters[n, 0] * x[h, k] + filters[n, 1] * w[r, k] + filters[n, 2] * x[t, k]
                )
                total += weights["weight"][n, k] * max(0.0, feature + weights["bias"][n])
        return total

    assert_formula(model, rows, score)


# --- HRAN by loops


def normalised(x: float, weights: dict[str, Array], name: str, k: int) -> float:
    """Batch normalisation in eval mode of the number k."""
    centred = x - weights[f"{name}.running_mean"][k]
    scaled = centred / math.sqrt(weights[f"{name}.running_var"][k] + 1e-5)
    return scaled * weights[f"{name}.weight"][k] + weights[f"{name}.bias"][k]


def relu(x: float) -> float:
    return max(0.0, x)


def neighbours(graph: KnowledgeGraph) -> dict[int, dict[int, list[int]]]:
    """Entity -> directed relation -> those it hears of: heads by r, tails by r + R."""
    found: dict[int, dict[int, list[int]]] = {e: {} for e in range(graph.num_entities)}
    for h, r, t in graph.train.tolist():
        found[t].setdefault(r, []).append(h)
        found[h].setdefault(r + graph.num_relations, []).append(t)
    return found


def attention(relations: Array, weights: dict[str, Array], layer: str) -> list[float]:
    """alpha_r = sigma(q . tanh(W r + b))."""
    found = []
    for r in relations:
        inner = weights[f"{layer}.attend.0.weight"] @ r + weights[f"{layer}.attend.0.bias"]
        q = weights[f"{layer}.attend.2.weight"][0]
        total = sum(q[k] * math.tanh(inner[k]) for k in range(len(q)))
        found.append(1 / (1 + math.exp(-total)))
    return found


def attend(
    x: Array,
    relations: Array,
    weights: dict[str, Array],
    layer: str,
    beta: float,
    graph: KnowledgeGraph,
) -> tuple[Array, Array]:
    """One layer of HRAN: entities (E, d) and directed relations (2R, d)."""
    alpha, dim = attention(relations, weights, layer), x.shape[1]
    entities = np.zeros_like(x)
    for e, paths in neighbours(graph).items():
        heard = np.zeros(dim)
        for r, senders in paths.items():
            mean = sum(x[i] for i in senders) / len(senders)  # m_(e, r)
            heard += alpha[r] * mean / len(paths)
        mixed = weights[f"{layer}.transform.weight"] @ ((1 - beta) * heard + beta * x[e])
        for k in range(dim):
            entities[e, k] = relu(normalised(mixed[k], weights, f"{layer}.norm", k))
    changed = np.zeros_like(relations)
    for r in range(len(relations)):
        turned = weights[f"{layer}.relate.0.weight"] @ relations[r]
        for k in range(dim):
            changed[r, k] = relu(normalised(turned[k], weights, f"{layer}.relate.1", k))
    return entities, changed


def decode(
    anchor: Array, relation: Array, weights: dict[str, Array], shape, filters, kernel
) -> Array:
    """ConvD: the image of anchor over relation, convolved with filters made from the relation."""
    height, width = shape
    numbers = [*anchor, *relation]
    image = [[numbers[i * width + j] for j in range(width)] for i in range(height)]
    made = weights["to_filters.weight"] @ relation + weights["to_filters.bias"]
    features = []
    for n in range(filters):
        omega = made[n * kernel * kernel : (n + 1) * kernel * kernel]
        for i in range(height - kernel + 1):
            for j in range(width - kernel + 1):
                total = 0.0
                for u in range(kernel):
                    for v in range(kernel):
                        total += image[i + u][j + v] * omega[u * kernel + v]
                features.append(relu(normalised(total, weights, "feature_norm", n)))
    projected = weights["project.0.weight"] @ np.array(features) + weights["project.0.bias"]
    return np.array([relu(normalised(v, weights, "project.2", k)) for k, v in enumerate(projected)])


@pytest.mark.parametrize("layers", [1, 2])
def test_hran_is_attention_over_relation_paths_decoded_by_filters_of_the_relation(layers):
    options = {"layers": layers, "beta": 0.4, "filters": 2, "kernel": 2}
    model, rows, weights = build("hran", 8, **options)
    assert model.image == (8, 2)  # 8 + 8 numbers, four times as high as wide
    x, relations = rows[:, :-1].numpy(), weights["relations"]
    bias = rows[:, -1].numpy()
    for layer in range(layers):
        x, relations = attend(x, relations, weights, f"layers.{layer}", 0.4, TRIANGLE)
    with torch.no_grad():
        context = model.contextualize(rows).numpy()
    np.testing.assert_allclose(context[:, :-1], x, rtol=1e-9)
    np.testing.assert_array_equal(context[:, -1], bias)

    def score(anchor: int, directed: int, answer: int) -> float:
        question = decode(x[anchor], relations[directed], weights, model.image, 2, 2)
        return float(question @ x[answer] + bias[answer])

    assert_formula(model, rows, score, lambda h, r, t: score(t, r + R, h))


def test_hran_takes_the_mean_by_relation_before_the_mean_over_relations():
    # c hears of a and b by `knows`, of a by inverse `likes`: shares 1/4, 1/4 and 1/2.
    model, _, _ = build("hran", 8, kernel=2, filters=2)
    edges = model.edges
    share = {
        (r, s, e): w
        for r, s, e, w in zip(
            edges.relation.tolist(),
            edges.sender.tolist(),
            edges.receiver.tolist(),
            model.share.tolist(),
            strict=True,
        )
    }
    knows, likes = TRIANGLE.relations.find("knows"), TRIANGLE.relations.find("likes")
    a, b, c = (TRIANGLE.entities.find(x) for x in "abc")
    assert share[knows, a, c] == share[knows, b, c] == pytest.approx(1 / 4)
    assert share[likes + R, a, c] == pytest.approx(1 / 2)
    assert share[knows + R, b, a] == share[knows + R, c, a] == pytest.approx(1 / 4)
    assert share[likes, c, a] == pytest.approx(1 / 2)


def test_an_entity_without_training_facts_hears_nothing_in_hran():
    graph = KnowledgeGraph.from_facts([("a", "knows", "b")], test=[("a", "likes", "stranger")])
    model, rows, weights = build("hran", 8, graph, beta=0.4, filters=2, kernel=2)
    expected, _ = attend(
        rows[:, :-1].numpy(), weights["relations"], weights, "layers.0", 0.4, graph
    )
    with torch.no_grad():
        found = model.contextualize(rows)[:, :-1].numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("blind", [True, False])
def test_a_blind_hran_does_not_hear_of_what_is_asked(blind):
    model, rows, _ = build("hran", 8, blind=blind, kernel=2, filters=2)
    a, b, c = (TRIANGLE.entities.find(x) for x in "abc")
    asked = torch.tensor([f for f in TRIANGLE.train.tolist() if {f[0], f[2]} == {a, c}])
    moved = rows.clone()
    moved[a] += 1
    with torch.no_grad():
        near = model.neighbourhood(torch.arange(E), asked)
        before, after = (model.contextualize(x, near) for x in (rows, moved))
        assert torch.equal(before[c], after[c]) is blind
        assert not torch.equal(before[b], after[b])
        plain, other = (model.contextualize(x) for x in (rows, moved))
        assert not torch.equal(plain[c], other[c])


@pytest.mark.parametrize("name", ["distmult", "compgcn"])
@torch.no_grad()
def test_where_three_vectors_multiply_each_has_a_size(name):
    options = {"decoder": "distmult"} if name == "compgcn" else {"reciprocal": True}
    model, rows, _ = build(name, 5, **options)
    anchor, answer = rows[[0, 1, 2]], rows[[2, 0, 1]]
    relation, side = torch.tensor([0, R - 1, 0]), torch.tensor([0, 1, 1])
    question = model.encode(anchor, relation, side)
    a, r, t = model.factors(anchor, relation, side, answer)
    torch.testing.assert_close(a * r * t, (question * answer) ** 2)


# --- CompGCN by loops


def shares(graph: KnowledgeGraph) -> dict[tuple[int, int, int], float]:
    """1 / sqrt(facts of the head * facts of the tail), of each fact: CompGCN's."""
    facts = [tuple(fact) for fact in graph.train.tolist()]
    return {
        (h, r, t): 1 / math.sqrt(sum(f[0] == h for f in facts) * sum(f[2] == t for f in facts))
        for h, r, t in facts
    }


@pytest.mark.parametrize("hidden", [[], [1], [0, 2]])  # what a blind encoder is not to hear of
@pytest.mark.parametrize("composition", ["subtraction", "multiplication", "correlation"])
def test_compgcn_sums_composed_messages_by_direction(composition, hidden):
    options = {"composition": composition, "decoder": "distmult", "blind": True}
    model, rows, weights = build("compgcn", 5, **options)
    x, z = rows.numpy(), weights["relations"]

    def compose(sent: Array, relation: Array) -> Array:
        if composition == "subtraction":
            return sent - relation
        if composition == "multiplication":
            return sent * relation
        return np.array([sum(sent[i] * relation[(i + k) % 5] for i in range(5)) for k in range(5)])

    facts = TRIANGLE.train.tolist()
    total = np.zeros((E, 5))
    for e in range(E):
        total[e] += compose(x[e], weights["layers.0.loop"][0]) @ weights["layers.0.weights.loop"]
    for number, (h, r, t) in enumerate(facts):
        if number in hidden:
            continue
        share = shares(TRIANGLE)[h, r, t]
        total[t] += share * compose(x[h], z[r]) @ weights["layers.0.weights.inward"]
        total[h] += share * compose(x[t], z[r + R]) @ weights["layers.0.weights.outward"]
    out = np.zeros((E, 5))
    for e in range(E):
        for k in range(5):
            out[e, k] = math.tanh(normalised(total[e, k] / 3, weights, "layers.0.norm", k))
    relations = z @ weights["layers.0.relate.weight"].T
    near = model.neighbourhood(torch.arange(E), torch.tensor(TRIANGLE.train)[hidden])
    with torch.no_grad():
        np.testing.assert_allclose(model.contextualize(rows, near).numpy(), out, rtol=1e-9)
    if hidden:
        return

    def score(anchor: int, directed: int, answer: int) -> float:
        return sum(out[anchor, k] * relations[directed, k] * out[answer, k] for k in range(5))

    assert_formula(model, rows, score, lambda h, r, t: score(t, r + R, h))


# --- ComplEx that hears


def conjugate(relation: Array) -> Array:
    middle = len(relation) // 2
    return np.concatenate([relation[:middle], -relation[middle:]])


@pytest.mark.parametrize("messages", ["compgcn", "hran"])
def test_graph_complex_adds_what_an_entity_hears(messages):
    model, rows, weights = build("graph-complex", 6, messages=messages, reciprocal=False)
    x, z = rows.numpy(), weights["relations"]
    both = np.concatenate([z, [conjugate(relation) for relation in z]])
    out = x.copy()
    if messages == "compgcn":
        for (h, r, t), share in shares(TRIANGLE).items():
            out[t] += 0.1 * weights["hear.weights.inward"] * share * x[h] * both[r]
            out[h] += 0.1 * weights["hear.weights.outward"] * share * x[t] * both[r + R]
    else:
        alpha = 1 / (1 + np.exp(-weights["hear.attention"]))
        for e, paths in neighbours(TRIANGLE).items():
            for r, senders in paths.items():
                mean = sum(x[i] for i in senders) / len(senders)
                out[e] += 0.1 * weights["hear.weight"] * alpha[r] * mean / len(paths)
    with torch.no_grad():
        np.testing.assert_allclose(model.contextualize(rows).numpy(), out, rtol=1e-9)

    def score(h: int, r: int, t: int) -> float:
        re, im = out[:, :3], out[:, 3:]
        head, relation, tail = re[h] + 1j * im[h], z[r, :3] + 1j * z[r, 3:], re[t] + 1j * im[t]
        return float((head * relation * tail.conj()).sum().real)

    assert_formula(model, rows, score)


@pytest.mark.parametrize("messages", ["compgcn", "hran"])
@torch.no_grad()
def test_in_training_graph_complex_hears_a_share_and_nothing_of_what_is_asked(messages):
    model, rows, _ = build("graph-complex", 6, messages=messages, unheard=0.5)
    everyone, facts = torch.arange(E), torch.tensor(TRIANGLE.train)
    whole = model.contextualize(rows)

    def near(asked: torch.Tensor) -> torch.Tensor:
        around = model.neighbourhood(everyone, asked)
        return model.contextualize(rows[around.ids], around)

    torch.testing.assert_close(near(facts[:0]), whole)
    assert torch.equal(near(facts), rows)
    model.train()
    with ambient(3, "dropout"):
        draws = torch.stack([near(facts[:0]) for _ in range(4000)])
        assert torch.equal(near(facts), rows)
    torch.testing.assert_close(draws.mean(0), whole, rtol=0, atol=0.1 * (whole - rows).abs().max())
    assert len(draws.unique(dim=0)) > 20  # of 2^8


def test_who_is_heard_by_graph_complex_learns_nothing_from_it():
    model, rows, _ = build("graph-complex", 6)
    wanted, rows = torch.tensor([1]), rows.requires_grad_()
    near = model.neighbourhood(wanted, torch.tensor(TRIANGLE.train)[:0])
    model.contextualize(rows[near.ids], near).sum().backward()
    assert rows.grad.abs().sum(1).tolist() == [0, 6, 0]
    assert model.relations.grad.abs().sum() > 0


@pytest.mark.parametrize("own", [False, True])
def test_features_are_torchs_convolution_normalisation_and_relu(own):
    number, channels, kernel = 7, 5, 3
    draws = torch.Generator().manual_seed(3)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draws, dtype=torch.float64).requires_grad_()

    image = random(number, 1, 9, 8)
    filters = random(*([number] if own else []), channels, kernel, kernel)
    bias = None if own else random(channels)
    norms = [nn.BatchNorm2d(channels).double() for _ in range(2)]
    for norm in norms:
        norm.weight.data.copy_(torch.linspace(0.5, 2, channels))
        norm.bias.data.copy_(torch.linspace(-0.5, 1, channels))

    def by_torch() -> torch.Tensor:
        if own:
            bank = filters.view(-1, 1, kernel, kernel)
            maps = torch.conv2d(image.view(1, number, 9, 8), bank, groups=number)
            maps = maps.view(number, channels, 7, 6)
        else:
            maps = torch.conv2d(image, filters.unsqueeze(1), bias)
        return torch.relu(norms[1](maps)).flatten(1)

    for training in (True, True, False):
        for norm in norms:
            norm.train(training)
        ours, theirs = features(image, filters, norms[0], bias, 0.0), by_torch()
        torch.testing.assert_close(ours, theirs)
        weight = random(*ours.shape).detach()
        slopes = [
            torch.autograd.grad((maps * weight).sum(), [image, filters, *norm.parameters()])
            for maps, norm in ((ours, norms[0]), (theirs, norms[1]))
        ]
        torch.testing.assert_close(*slopes)
        torch.testing.assert_close(norms[0].state_dict(), norms[1].state_dict())


def test_features_drop_whole_maps_in_training_only():
    draws = torch.Generator().manual_seed(3)
    image, filters = (torch.randn(*s, generator=draws) for s in ((40, 1, 4, 4), (6, 2, 2)))
    norm = nn.BatchNorm2d(6)
    norm.bias.data.fill_(9.0)  # so that ReLU leaves no zeros of its own
    whole = features(image, filters, norm, None, 0.0).view(40, 6, 9)
    with ambient(3, "dropout"):
        some = features(image, filters, norm, None, 0.5).view(40, 6, 9)
    dropped = (some == 0).all(2)
    assert 0.3 < dropped.float().mean() < 0.7
    torch.testing.assert_close(some[~dropped], 2 * whole[~dropped])
    norm.eval()
    assert features(image, filters, norm, None, 0.5).gt(0).all()
