"""PyKEEN as an oracle: on the same random weights our scores are its interactions' to 1e-5."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from puda.config import ScoringConfig
from puda.scoring import SCORING, ScoringFunction, build_model
from puda.scoring.compgcn import COMPOSITIONS, CompGCN
from puda.seeds import ambient
from puda.types import Questions, Side
from toy import family_tree

pytest.importorskip("pykeen", reason="PyKEEN is not installed")

from pykeen.nn import modules  # noqa: E402
from pykeen.nn.modules import interaction_resolver  # noqa: E402
from pykeen.nn.representation import CompGCNLayer  # noqa: E402

GRAPH = family_tree(3)
DIM = 32


def build(name: str, **options: float | str) -> tuple[ScoringFunction, Tensor]:
    """Make a model in eval mode and an entity table, both random and of size 1."""
    config = ScoringConfig(name=name, dim=DIM, options=options)
    with ambient(11, "oracle"), torch.no_grad():
        model = build_model(config, GRAPH)
        for weight in model.parameters():
            weight.normal_(0, 0.3)
        for norm in model.modules():
            if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
                norm.running_mean.normal_()
                norm.running_var.uniform_(0.5, 1.5)
        return model.eval(), torch.randn(GRAPH.num_entities, model.row_dim)


def questions(side: Side) -> Iterator[tuple[int, Questions]]:
    """Yield each relation with the questions of one side about all entities."""
    anchor = torch.arange(GRAPH.num_entities)
    for relation in range(GRAPH.num_relations):
        asked = torch.full_like(anchor, relation), torch.full_like(anchor, int(side))
        yield relation, Questions(anchor, *asked)


@torch.no_grad()
def assert_agreement(
    model: ScoringFunction,
    rows: Tensor,
    interaction: Callable[[Tensor, int, Tensor], Tensor],
    *,
    side: Side,
    reciprocal: bool = False,
) -> None:
    """Compare all scores of one side with interaction(heads (.., row), relation, tails (.., row)).

    For models whose head questions are tail questions of r + R, those are what is compared.
    """
    assert model.reciprocal == reciprocal
    for relation, asked in questions(side):
        found = model.match(model.ask(asked, rows), rows)  # (anchors, candidates)
        anchors, candidates = rows.unsqueeze(1), rows.unsqueeze(0)
        if side is Side.TAIL or reciprocal:
            directed = relation + int(side) * GRAPH.num_relations
            expected = interaction(anchors, directed, candidates)
        else:
            expected = interaction(candidates, relation, anchors)
        assert expected.shape == found.shape
        assert expected.std() > 1e-2
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def to_complex(packed: Tensor) -> Tensor:
    """Unpack rows of real parts, then imaginary parts."""
    return torch.complex(packed[..., : DIM // 2].contiguous(), packed[..., DIM // 2 :].contiguous())


both_sides = pytest.mark.parametrize("side", list(Side), ids=lambda side: side.name.lower())
with_and_without_reciprocals = pytest.mark.parametrize("reciprocal", [False, True])


@both_sides
@with_and_without_reciprocals
def test_distmult_scores_as_pykeens(side, reciprocal):
    model, rows = build("distmult", reciprocal=reciprocal)
    theirs = modules.DistMultInteraction()
    assert_agreement(
        model,
        rows,
        lambda h, r, t: theirs(h, model.relations[r], t),
        side=side,
        reciprocal=reciprocal,
    )


@both_sides
@with_and_without_reciprocals
def test_complex_scores_as_pykeens(side, reciprocal):
    model, rows = build("complex", reciprocal=reciprocal)
    theirs = modules.ComplExInteraction()
    assert_agreement(
        model,
        rows,
        lambda h, r, t: theirs(to_complex(h), to_complex(model.relations[r]), to_complex(t)),
        side=side,
        reciprocal=reciprocal,
    )


@both_sides
def test_simple_scores_as_pykeens(side):
    # PyKEEN: (<h_0, r_0, t_0> + <t_1, r_1, h_1>) / 2, so a tail's 0 is our e_T, its 1 our e_H.
    model, rows = build("simple")
    theirs = modules.SimplEInteraction()

    def score(h: Tensor, r: int, t: Tensor) -> Tensor:
        (h_head, h_tail), (t_head, t_tail) = h.chunk(2, -1), t.chunk(2, -1)
        return theirs((h_head, h_tail), model.relations[r].chunk(2), (t_tail, t_head))

    assert_agreement(model, rows, score, side=side)


@both_sides
@with_and_without_reciprocals
@pytest.mark.parametrize("norm", [1, 2])
def test_transe_scores_as_pykeens_plus_the_margin(side, reciprocal, norm):
    model, rows = build("transe", norm=norm, margin=5.0, reciprocal=reciprocal)
    theirs = modules.TransEInteraction(p=norm)
    assert_agreement(
        model,
        rows,
        lambda h, r, t: 5.0 + theirs(h, model.relations[r], t),
        side=side,
        reciprocal=reciprocal,
    )


@both_sides
def test_crosse_scores_as_pykeens_with_parameters_by_side(side):
    model, rows = build("crosse")
    theirs = modules.CrossEInteraction(embedding_dim=DIM).eval()
    theirs.bias.data.copy_(model.bias[int(side)])
    assert_agreement(
        model,
        rows,
        lambda h, r, t: theirs(h, (model.relations[r], model.interactions[r]), t),
        side=side,
        reciprocal=True,
    )


@both_sides
@with_and_without_reciprocals
def test_rotate_scores_as_pykeens_summed_over_single_numbers(side, reciprocal):
    # PyKEEN takes the L2 norm over all complex numbers whatever `p` says, the paper and we the sum
    # of their moduli. Over a single number the two are the same.
    model, rows = build("rotate", margin=5.0, reciprocal=reciprocal)
    theirs = modules.RotatEInteraction()

    def score(h: Tensor, r: int, t: Tensor) -> Tensor:
        theta = model.relations[r] * torch.pi / model.bound
        rotation = torch.polar(torch.ones_like(theta), theta)
        single = (x.unsqueeze(-1) for x in (to_complex(h), rotation, to_complex(t)))
        return 5.0 + theirs(*single).sum(-1)

    assert_agreement(model, rows, score, side=side, reciprocal=reciprocal)


@both_sides
@with_and_without_reciprocals
def test_squared_rotate_scores_as_the_square_of_pykeens(side, reciprocal):
    model, rows = build("rotate", margin=5.0, squared=True, reciprocal=reciprocal)
    theirs = modules.RotatEInteraction()

    def score(h: Tensor, r: int, t: Tensor) -> Tensor:
        theta = model.relations[r] * torch.pi / model.bound
        rotation = torch.polar(torch.ones_like(theta), theta)
        return 5.0 - theirs(to_complex(h), rotation, to_complex(t)) ** 2

    assert_agreement(model, rows, score, side=side, reciprocal=reciprocal)


def convolution_of(model: ScoringFunction, height: int, width: int) -> modules.ConvEInteraction:
    """Make PyKEEN's ConvE with the weights of our convolution."""
    theirs = modules.ConvEInteraction(
        output_channels=4, embedding_height=height, embedding_width=width, embedding_dim=DIM
    )
    theirs.hr2d.load_state_dict(model.convolution.image.state_dict())
    theirs.hr1d.load_state_dict(model.convolution.project.state_dict())
    return theirs.eval()


def woven(h: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """Return what PyKEEN, whose image is h over r, must be given to convolve h_0 r_0 h_1 r_1..."""
    upper, lower = torch.stack(torch.broadcast_tensors(h, r), dim=-1).flatten(-2).chunk(2, dim=-1)
    return upper, lower


@both_sides
@pytest.mark.parametrize("lay_out", [lambda h, r: (h, r), woven], ids=["over", "woven"])
def test_conve_scores_as_pykeens(lay_out, side):
    model, rows = build("conve", filters=4, interleaved=lay_out is woven)
    height, width = model.convolution.shape
    theirs = convolution_of(model, height // 2, width)

    def score(h: Tensor, r: int, t: Tensor) -> Tensor:
        upper, lower = lay_out(h[..., :-1], model.relations[r])
        return theirs(upper, lower, (t[..., :-1], t[..., -1]))

    assert_agreement(model, rows, score, side=side, reciprocal=True)


@both_sides
def test_convkb_scores_as_pykeens(side):
    model, rows = build("convkb", filters=4)
    theirs = modules.ConvKBInteraction(embedding_dim=DIM, num_filters=4).eval()
    theirs.conv.weight.data.copy_(model.filters.view(4, 1, 1, 3))
    theirs.conv.bias.data.copy_(model.bias)
    theirs.linear.weight.data.copy_(model.weight.view(1, -1))
    theirs.linear.bias.data.copy_(model.offset.view(1))
    assert_agreement(model, rows, lambda h, r, t: theirs(h, model.relations[r], t), side=side)


# --- CompGCN


def compositions() -> dict[str, str]:
    """Our names of compositions and PyKEEN's."""
    theirs = {"correlation": "circularcorrelation"}
    return {name: theirs.get(name, name) for name in COMPOSITIONS}


def interleaved(relations: Tensor) -> Tensor:
    """Order relations as PyKEEN does: r at 2r, its inverse at 2r + 1."""
    return torch.stack(relations.chunk(2), dim=1).flatten(0, 1)


def pykeens_layer(layer: nn.Module, composition: str) -> CompGCNLayer:
    """Make PyKEEN's layer with the weights of ours."""
    theirs = CompGCNLayer(DIM, composition=compositions()[composition], activation=nn.Tanh)
    theirs.w_loop.data.copy_(layer.weights["loop"])
    theirs.w_fwd.data.copy_(layer.weights["inward"])
    theirs.w_bwd.data.copy_(layer.weights["outward"])
    theirs.self_loop.data.copy_(layer.loop)
    theirs.w_rel.load_state_dict(layer.relate.state_dict())
    theirs.bn.load_state_dict(layer.norm.state_dict())
    return theirs.eval()


@torch.no_grad()
def pykeens_encoder(model: CompGCN, vectors: Tensor, composition: str) -> tuple[Tensor, Tensor]:
    """Run entities (E, d) and relations through PyKEEN's layers; relations come in our order."""
    head, relation, tail = torch.tensor(GRAPH.train).T
    relations = interleaved(model.relations)
    for layer in model.layers:
        theirs = pykeens_layer(layer, composition)
        vectors, relations = theirs(vectors, relations, torch.stack([head, tail]), relation)
    return vectors, torch.cat([relations[0::2], relations[1::2]])


@pytest.mark.parametrize("training", [False, True], ids=["eval", "training"])
@pytest.mark.parametrize("composition", COMPOSITIONS)
@torch.no_grad()
def test_a_layer_of_compgcn_is_pykeens(composition, training):
    model, rows = build("compgcn", composition=composition, decoder="distmult", dropout=0.0)
    layer = model.layers[0].train(training)
    theirs = pykeens_layer(layer, composition).train(training)
    head, relation, tail = torch.tensor(GRAPH.train).T
    ours = layer(rows, model.relations, model.edges.everywhere, model.share.float())
    edges = torch.stack([head, tail])
    entities, relations = theirs(rows, interleaved(model.relations), edges, relation)
    torch.testing.assert_close(ours[0], entities, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(interleaved(ours[1]), relations, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(layer.norm.state_dict(), theirs.bn.state_dict())


@both_sides
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("composition", COMPOSITIONS)
@torch.no_grad()
def test_compgcn_decoded_by_distmult_scores_as_pykeens(composition, layers, side):
    model, table = build("compgcn", composition=composition, decoder="distmult", layers=layers)
    entities, relations = pykeens_encoder(model, table, composition)
    rows = model.contextualize(table)
    torch.testing.assert_close(rows, entities, rtol=1e-5, atol=1e-5)
    theirs = modules.DistMultInteraction()
    assert_agreement(
        model, rows, lambda h, r, t: theirs(h, relations[r], t), side=side, reciprocal=True
    )


@both_sides
@pytest.mark.parametrize("layers", [1, 2])
@torch.no_grad()
def test_compgcn_decoded_by_conve_scores_as_pykeens(layers, side):
    model, table = build("compgcn", layers=layers, filters=4, kernel=3)
    vectors, relations = pykeens_encoder(model, table[:, :DIM], "correlation")
    rows = model.contextualize(table)
    torch.testing.assert_close(rows, torch.cat([vectors, table[:, DIM:]], 1), rtol=1e-5, atol=1e-5)
    height, width = model.convolution.shape
    theirs = convolution_of(model, height // 2, width)

    def score(h: Tensor, r: int, t: Tensor) -> Tensor:
        upper, lower = woven(h[..., :-1], relations[r])
        return theirs(upper, lower, (t[..., :-1], t[..., -1]))

    assert_agreement(model, rows, score, side=side, reciprocal=True)


def test_every_model_that_pykeen_has_is_compared_with_it():
    ours_alone = {"pykeen"}  # the adapter: tests/scoring/test_pykeen_adapter.py
    shared = (set(SCORING) & set(interaction_resolver.lookup_dict)) - ours_alone
    tests = [name for name in globals() if name.startswith("test_")]
    for name in shared:
        assert any(test.startswith(f"test_{name}_scores_as_pykeens") for test in tests), name
