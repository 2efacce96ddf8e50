"""Each risk on a table worked by hand, against torch's own losses, and at the edges."""

import inspect
import itertools
from math import log as ln

import pytest
import torch
from torch import Tensor
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    margin_ranking_loss,
    softplus,
)

from puda.config import Config
from puda.errors import ConfigError
from puda.objectives import OBJECTIVES, ORDERINGS, USES_SYNTHETIC
from puda.training.build import build_learner
from puda.types import Risk, Scores
from toy import checkerboard

# The table: logarithms of small numbers, so that softplus(ln a) = ln(1 + a) and
# softplus(ln b - ln a) = ln(1 + b/a) can be read off. Two questions, three unlabeled entities,
# two synthetic ones.
POSITIVE = [ln(2), ln(4)]
UNLABELED = [[ln(1), ln(2), ln(6)], [ln(3), ln(4), ln(1)]]
SYNTHETIC = [[ln(1), ln(3)], [ln(2), ln(8)]]
PRIOR = 0.1

# R_p+ = mean softplus(-p): ln(1 + 1/2), ln(1 + 1/4). R_p- = mean softplus(p): ln(1 + 2), ln(1 + 4).
R_POSITIVE = (ln(3 / 2) + ln(5 / 4)) / 2
R_INVERTED = (ln(3) + ln(5)) / 2

R_UNLABELED = {
    # softplus(u) = ln(1 + 1), ln(1 + 2), ln(1 + 6); ln(1 + 3), ln(1 + 4), ln(1 + 1)
    "pointwise": (ln(2) + ln(3) + ln(7) + ln(4) + ln(5) + ln(2)) / 6,
    # softplus(u - p) = ln(1 + 1/2), ln(1 + 2/2), ln(1 + 6/2); ln(1 + 3/4), ln(1 + 4/4), ln(1 + 1/4)
    "pairwise": (ln(3 / 2) + ln(2) + ln(4) + ln(7 / 4) + ln(2) + ln(5 / 4)) / 6,
    # ln(1 + (1 + 2 + 6)/2), ln(1 + (3 + 4 + 1)/4)
    "listwise": (ln(11 / 2) + ln(3)) / 2,
}
R_SYNTHETIC = {
    # ln(1 + 1), ln(1 + 3); ln(1 + 2), ln(1 + 8)
    "pointwise": (ln(2) + ln(4) + ln(3) + ln(9)) / 4,
    # ln(1 + 1/2), ln(1 + 3/2); ln(1 + 2/4), ln(1 + 8/4)
    "pairwise": (ln(3 / 2) + ln(5 / 2) + ln(3 / 2) + ln(3)) / 4,
    # ln(1 + (1 + 3)/2), ln(1 + (2 + 8)/4)
    "listwise": (ln(3) + ln(7 / 2)) / 2,
}

# The second entity of the first question and the outer two of the second do not count.
COUNTED = [[True, False, True], [False, True, False]]
R_COUNTED = {
    "pointwise": ((ln(2) + ln(7)) / 2 + ln(5)) / 2,
    "pairwise": ((ln(3 / 2) + ln(4)) / 2 + ln(2)) / 2,
    "listwise": (ln(9 / 2) + ln(2)) / 2,  # ln(1 + (1 + 6)/2), ln(1 + 4/4)
}

# Halves and quarters instead of thirds; what weighs 0 does not matter.
WEIGHT = [[1 / 2, 1 / 4, 1 / 4], [0, 1 / 4, 3 / 4]]
R_WEIGHTED = {
    "pointwise": (ln(2) / 2 + ln(3) / 4 + ln(7) / 4 + ln(5) / 4 + ln(2) * 3 / 4) / 2,
    "pairwise": (ln(3 / 2) / 2 + ln(2) / 4 + ln(4) / 4 + ln(2) / 4 + ln(5 / 4) * 3 / 4) / 2,
}

# max(0, 1 + u - p): the last, 1 + ln(1/4) = -0.39, is below its margin already.
MARGIN = [[1 + ln(1 / 2), 1, 1 + ln(3)], [1 + ln(3 / 4), 1, 0]]

# softplus(s) - y s of the four candidates of each question; labels are 0 + 1/4 for the unlabeled
# and (1 - 0.1) + 1/4 = 1.15 for the positive.
BCE_UNLABELED = [
    [ln(2) - ln(1) / 4, ln(3) - ln(2) / 4, ln(7) - ln(6) / 4],
    [ln(4) - ln(3) / 4, ln(5) - ln(4) / 4, ln(2) - ln(1) / 4],
]
BCE_POSITIVE = [ln(3) - 1.15 * ln(2), ln(5) - 1.15 * ln(4)]


def pn_by_hand(unlabeled: float, prior: float = PRIOR) -> float:
    return prior * R_POSITIVE + (1 - prior) * unlabeled


def pu_by_hand(others: float) -> float:
    bracket = others - PRIOR * R_INVERTED
    assert bracket > 0  # else max(0, .) hides what is tested
    return PRIOR * R_POSITIVE + bracket


WORKED = {
    "pn": lambda u, g: pn_by_hand(u),
    "pu-c": lambda u, g: pu_by_hand(u),
    "pu-r": lambda u, g: pu_by_hand(u),
    "da": lambda u, g: pn_by_hand(u) + g,
    "puda": lambda u, g: pu_by_hand(u + g),
}
"""Totals from R_u- and R_*-, for the objectives that are told how to order."""

ORDERED = [*WORKED]
OTHERS = ["softmax", "margin", "bce"]


def takes(name: str, option: str) -> bool:
    return option in inspect.signature(OBJECTIVES[name]).parameters


def with_option(option: str) -> list[str]:
    return [name for name in OBJECTIVES if takes(name, option)]


def options_of(name: str, ordering: str) -> dict[str, object]:
    options: dict[str, object] = {"prior": PRIOR} if takes(name, "prior") else {}
    if takes(name, "ordering"):
        options["ordering"] = ordering
    if takes(name, "synthetic_ordering"):
        options["synthetic_ordering"] = ordering
    return options


def table(**changes: Tensor | None) -> Scores:
    numbers = (torch.tensor(x, dtype=torch.float64) for x in (POSITIVE, UNLABELED, SYNTHETIC))
    return Scores(*numbers)._replace(**changes)


def doubles(numbers: list) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def drawn(
    questions: int = 5, unlabeled: int = 4, synthetic: int = 3, *, seed: int = 0, size: float = 1.0
) -> Scores:
    """Draw scores of a batch in which some unlabeled entities do not count."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return size * torch.randn(*shape, generator=random, dtype=torch.float64)

    counted = torch.rand(questions, unlabeled, generator=random) < 0.7
    return Scores(
        normal(questions), normal(questions, unlabeled), normal(questions, synthetic)
    )._replace(counted=counted)


def leaves(scores: Scores) -> Scores:
    """Make the scores ask for gradients."""
    return scores._replace(
        positive=scores.positive.clone().requires_grad_(),
        unlabeled=scores.unlabeled.clone().requires_grad_(),
        synthetic=scores.synthetic.clone().requires_grad_(),
    )


def gradients(total: Tensor, scores: Scores) -> list[Tensor]:
    wanted = [scores.positive, scores.unlabeled, scores.synthetic]
    found = torch.autograd.grad(total, wanted, allow_unused=True, retain_graph=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=True)]


every_objective = pytest.mark.parametrize("name", OBJECTIVES)
every_case = pytest.mark.parametrize(
    ("name", "ordering"),
    [(n, o) for n in OBJECTIVES for o in (ORDERINGS if takes(n, "ordering") else ["its own"])],
)
every_ordering = pytest.mark.parametrize("ordering", ORDERINGS)


def test_every_objective_has_numbers_worked_by_hand():
    assert set(OBJECTIVES) == {*ORDERED, *OTHERS}
    assert set(with_option("ordering")) == set(ORDERED)
    assert set(ORDERINGS) == set(R_UNLABELED) == set(R_SYNTHETIC) == set(R_COUNTED)


# --- known answers


@every_ordering
@pytest.mark.parametrize("name", ORDERED)
def test_a_risk_is_what_the_table_gives_by_hand(name, ordering):
    risk = OBJECTIVES[name](table(), **options_of(name, ordering))
    synthetic = R_SYNTHETIC[ordering] if name in USES_SYNTHETIC else 0.0
    expected = Risk(
        WORKED[name](R_UNLABELED[ordering], synthetic),
        R_POSITIVE,
        R_INVERTED,
        R_UNLABELED[ordering],
        synthetic,
    )
    assert [part.item() for part in risk] == pytest.approx(expected)


@every_ordering
@pytest.mark.parametrize("name", ORDERED)
def test_only_the_entities_that_count_are_in_the_mean(name, ordering):
    risk = OBJECTIVES[name](table(counted=torch.tensor(COUNTED)), **options_of(name, ordering))
    assert risk.unlabeled.item() == pytest.approx(R_COUNTED[ordering])
    assert risk.total.item() == pytest.approx(
        WORKED[name](R_COUNTED[ordering], R_SYNTHETIC[ordering])
    )


@pytest.mark.parametrize("ordering", R_WEIGHTED)
@pytest.mark.parametrize("name", ORDERED)
def test_weights_are_the_parts_in_the_mean_over_the_unlabeled_alone(name, ordering):
    risk = OBJECTIVES[name](table(weight=doubles(WEIGHT)), **options_of(name, ordering))
    assert risk.unlabeled.item() == pytest.approx(R_WEIGHTED[ordering])
    assert risk.total.item() == pytest.approx(
        WORKED[name](R_WEIGHTED[ordering], R_SYNTHETIC[ordering])
    )


@pytest.mark.parametrize(
    ("name", "prior", "ordering"),
    [
        ("pn", 0.5, "pointwise"),
        ("pu-c", 0.1, "pointwise"),
        ("pu-r", 1e-5, "pairwise"),
        ("da", 0.5, "pointwise"),
        ("puda", 1e-5, "pairwise"),
    ],
)
def test_the_defaults_are_the_papers(name, prior, ordering):
    # PN halves both risks (Eq. 2); DA ranks synthetic entities whatever PN does (Eqs. 14, 15).
    stated = OBJECTIVES[name](table(), prior=prior, ordering=ordering)
    assert OBJECTIVES[name](table()) == stated
    if name in USES_SYNTHETIC:
        assert stated.synthetic.item() == pytest.approx(R_SYNTHETIC["pairwise"])
    if name == "da":
        assert stated.total.item() == pytest.approx(
            pn_by_hand(R_UNLABELED["pointwise"], 0.5) + R_SYNTHETIC["pairwise"]
        )


def test_softmax_is_the_listwise_risk_alone():
    assert OBJECTIVES["softmax"](table()).total.item() == pytest.approx(R_UNLABELED["listwise"])
    counted = table(counted=torch.tensor(COUNTED))
    assert OBJECTIVES["softmax"](counted).total.item() == pytest.approx(R_COUNTED["listwise"])


def test_margin_is_the_mean_of_what_lies_within_it():
    (a, b, c), (d, e, f) = MARGIN
    margin = OBJECTIVES["margin"]
    assert margin(table()).total.item() == pytest.approx((a + b + c + d + e + f) / 6)
    counted = margin(table(counted=torch.tensor(COUNTED)))
    assert counted.total.item() == pytest.approx(((a + c) / 2 + e) / 2)
    weighted = margin(table(weight=doubles(WEIGHT)))
    assert weighted.total.item() == pytest.approx((a / 2 + b / 4 + c / 4 + e / 4 + f * 3 / 4) / 2)
    # Twice as wide, nothing is beyond it: every term is 1 larger, the last 2 + ln(1/4).
    wide = margin(table(), width=2.0)
    assert wide.total.item() == pytest.approx((a + b + c + d + e + 5 + 2 + ln(1 / 4)) / 6)


def test_bce_is_the_mean_over_the_candidates_the_answer_included():
    total = (sum(BCE_UNLABELED[0] + BCE_UNLABELED[1]) + sum(BCE_POSITIVE)) / 8
    risk = OBJECTIVES["bce"](table())
    assert risk.total.item() == pytest.approx(total)
    assert risk.unlabeled.item() == pytest.approx(sum(BCE_UNLABELED[0] + BCE_UNLABELED[1]) / 8)


def test_bce_smooths_by_the_number_of_candidates_that_count():
    # Three candidates of the first question (labels 1/3 and 0.9 + 1/3), two of the second.
    first = ln(2) - ln(1) / 3 + ln(7) - ln(6) / 3 + ln(3) - (0.9 + 1 / 3) * ln(2)
    second = ln(5) - ln(4) / 2 + ln(5) - (0.9 + 1 / 2) * ln(4)
    risk = OBJECTIVES["bce"](table(counted=torch.tensor(COUNTED)))
    assert risk.total.item() == pytest.approx((first / 3 + second / 2) / 2)


# --- grouped positives


@every_ordering
@pytest.mark.parametrize("name", [*ORDERED, "softmax", "margin"])
def test_positives_with_an_owner_have_the_risk_of_the_table_written_out(name, ordering):
    owner = torch.tensor([0, 0, 1, 3, 2, 3, 3])
    grouped = drawn(4)._replace(positive=drawn(len(owner), seed=1).positive, owner=owner)
    written_out = Scores(
        grouped.positive,
        grouped.unlabeled[owner],
        grouped.synthetic[owner],
        grouped.counted[owner],
    )
    options = options_of(name, ordering)
    risk, expected = (OBJECTIVES[name](x, **options) for x in (grouped, written_out))
    assert [x.item() for x in risk] == pytest.approx([x.item() for x in expected])


@pytest.mark.parametrize("ordering", R_WEIGHTED)
@pytest.mark.parametrize("name", ORDERED)
def test_weights_go_with_the_question_that_owns_a_positive(name, ordering):
    owner = torch.tensor([1, 0, 1])
    grouped = table(positive=doubles([0.3, -1.0, 2.0]), weight=doubles(WEIGHT), owner=owner)
    written_out = Scores(
        grouped.positive,
        grouped.unlabeled[owner],
        grouped.synthetic[owner],
        weight=grouped.weight[owner],
    )
    options = options_of(name, ordering)
    risk, expected = (OBJECTIVES[name](x, **options).total for x in (grouped, written_out))
    assert risk.item() == pytest.approx(expected.item())


@every_ordering
@pytest.mark.parametrize("name", [*ORDERED, "softmax", "margin"])
def test_a_positive_with_three_times_the_share_counts_as_three(name, ordering):
    listwise = ordering == "listwise" or name == "softmax"  # which takes no weights
    for weight in [None] if listwise else [None, doubles(WEIGHT)]:
        once = table(
            positive=doubles([0.3, -1.0, 2.0]), owner=torch.tensor([0, 1, 1]), weight=weight
        )
        shared = once._replace(share=doubles([0.2, 0.2, 0.6]))
        thrice = once._replace(
            positive=doubles([0.3, -1.0, 2.0, 2.0, 2.0]), owner=torch.tensor([0, 1, 1, 1, 1])
        )
        options = options_of(name, ordering)
        risk, expected, equal = (OBJECTIVES[name](x, **options) for x in (shared, thrice, once))
        assert [x.item() for x in risk] == pytest.approx([x.item() for x in expected])
        assert risk.total.item() != pytest.approx(equal.total.item())


@pytest.mark.parametrize("name", ["pu-c", "pu-r", "puda"])
def test_priors_of_positives_are_averaged_by_their_share(name):
    prior, share = doubles([0.1, 0.3]), doubles([0.25, 0.75])
    certain = 0.25 * 0.1 * ln(1 + 1 / 2) + 0.75 * 0.3 * ln(1 + 1 / 4)  # positives: ln 2, ln 4
    empty = {"unlabeled": torch.empty(2, 0).double(), "synthetic": torch.empty(2, 0).double()}
    risk = OBJECTIVES[name](table(prior=prior, share=share, **empty))
    assert risk.total.item() == pytest.approx(certain)


def test_bce_refuses_shares():
    with pytest.raises(ConfigError, match="training.weights=even"):
        OBJECTIVES["bce"](table(share=doubles([0.5, 0.5])))


def test_bce_of_grouped_positives_counts_all_answers_of_a_question_as_candidates():
    # The first question has two answers, ln 2 and ln 4, and three unlabeled: labels 1/5, 1.1.
    # The second has no answer at all: labels 1/3.
    scores = table(owner=torch.tensor([0, 0]))
    first = (ln(2) - ln(1) / 5) + (ln(3) - ln(2) / 5) + (ln(7) - ln(6) / 5)
    first += (ln(3) - 1.1 * ln(2)) + (ln(5) - 1.1 * ln(4))
    second = (ln(4) - ln(3) / 3) + (ln(5) - ln(4) / 3) + (ln(2) - ln(1) / 3)
    risk = OBJECTIVES["bce"](scores)
    assert risk.total.item() == pytest.approx((first / 5 + second / 3) / 2)


# --- torch's own losses


def test_softmax_is_the_cross_entropy_of_the_positive_among_the_counted():
    scores = drawn(50, 20)
    logits = torch.cat([scores.positive[:, None], scores.unlabeled], dim=1)
    logits[:, 1:][~scores.counted] = -torch.inf
    expected = cross_entropy(logits, torch.zeros(50, dtype=torch.long))
    assert OBJECTIVES["softmax"](scores).total.item() == pytest.approx(expected.item())


@pytest.mark.parametrize("width", [0.5, 3.0])
def test_margin_is_torchs_margin_ranking_loss(width):
    scores = drawn(50, 20)._replace(counted=None)
    positive = scores.positive[:, None].expand_as(scores.unlabeled)
    above = torch.ones_like(positive)
    expected = margin_ranking_loss(positive, scores.unlabeled, above, margin=width)
    found = OBJECTIVES["margin"](scores, width=width).total
    assert found.item() == pytest.approx(expected.item())


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_bce_of_all_entities_is_kvsall_with_smoothed_labels(smoothing):
    size = 12
    everything = drawn(6, size).unlabeled
    truth = torch.rand(6, size, generator=torch.Generator().manual_seed(1)) < 0.3
    assert truth.any(1).all()
    owner, answers = truth.nonzero(as_tuple=True)
    scores = Scores(
        everything[owner, answers], everything, everything[:, :0], counted=~truth, owner=owner
    )
    labels = (1 - smoothing) * truth.double() + 1 / size  # as ConvE's code has it, not smoothing/E
    expected = binary_cross_entropy_with_logits(everything, labels)
    found = OBJECTIVES["bce"](scores, smoothing=smoothing).total
    assert found.item() == pytest.approx(expected.item())


def test_pn_of_one_unlabeled_each_is_binary_cross_entropy_without_smoothing():
    scores = drawn(30, 1)._replace(counted=None)
    logits = torch.cat([scores.positive[:, None], scores.unlabeled], dim=1)
    labels = torch.tensor([1.0, 0.0], dtype=torch.float64).expand_as(logits)
    expected = binary_cross_entropy_with_logits(logits, labels)
    assert OBJECTIVES["pn"](scores).total.item() == pytest.approx(expected.item())


def test_pn_with_softmax_weights_is_the_self_adversarial_loss_of_rotate():
    scores = drawn(8, 6)._replace(counted=None)
    weight = scores.unlabeled.softmax(1)
    expected = 0.0
    for p, u, w in zip(scores.positive, scores.unlabeled, weight, strict=True):
        expected += (softplus(-p) + sum(w[j] * softplus(u[j]) for j in range(6))) / 2
    found = OBJECTIVES["pn"](scores._replace(weight=weight)).total
    assert found.item() == pytest.approx(expected.item() / 8)


# --- identities


@every_ordering
@pytest.mark.parametrize("name", ["pu-c", "pu-r", "puda"])
@pytest.mark.parametrize("prior", [0.0, 1e-5, 0.05])
def test_unclamped_the_prior_only_takes_its_part_of_the_mean_positive_score(name, ordering, prior):
    # softplus(-x) - softplus(x) = -x (method.md, point 2)
    scores = drawn(20, 10)
    risk = OBJECTIVES[name](scores, prior=prior, ordering=ordering)
    assert risk.unlabeled + risk.synthetic > prior * risk.inverted  # unclamped
    ranking = risk.unlabeled + risk.synthetic
    assert risk.total.item() == pytest.approx((ranking - prior * scores.positive.mean()).item())


@pytest.mark.parametrize("ordering", ["pointwise", "pairwise"])
def test_without_an_ordering_of_its_own_pu_c_and_pu_r_are_one(ordering):
    scores = drawn()
    c, r = (OBJECTIVES[n](scores, prior=PRIOR, ordering=ordering) for n in ("pu-c", "pu-r"))
    assert c == r


@every_ordering
@pytest.mark.parametrize(("name", "bare"), [("puda", "pu-r"), ("da", "pn")])
def test_without_synthetic_entities_the_adversarial_part_is_gone(name, bare, ordering):
    scores = drawn(synthetic=0)
    found = OBJECTIVES[name](scores, **options_of(name, ordering))
    expected = OBJECTIVES[bare](scores, **options_of(bare, ordering))
    assert found == expected
    assert found.synthetic.item() == 0


# --- corrections


def below_zero() -> Scores:
    """Positives so high and others so low that R_u- + R_*- < prior R_p- at a prior of 0.9."""
    scores = drawn()._replace(counted=None)
    return leaves(
        scores._replace(
            positive=scores.positive + 5,
            unlabeled=scores.unlabeled - 5,
            synthetic=scores.synthetic - 5,
        )
    )


corrected = pytest.mark.parametrize("name", with_option("correction"))


@every_ordering
@corrected
def test_clamped_a_negative_bracket_has_neither_value_nor_gradient(name, ordering):
    scores = below_zero()
    risk = OBJECTIVES[name](scores, prior=0.9, ordering=ordering, correction="clamp")
    assert risk.unlabeled + risk.synthetic < 0.9 * risk.inverted
    certain = 0.9 * softplus(-scores.positive).mean()
    assert risk.total.item() == pytest.approx(certain.item())
    for found, expected in zip(
        gradients(risk.total, scores), gradients(certain, scores), strict=True
    ):
        torch.testing.assert_close(found, expected)
    assert gradients(risk.total, scores)[0].abs().min() > 0  # the positives' own part is left


@every_ordering
@corrected
def test_reversed_a_negative_bracket_is_stepped_against(name, ordering):
    scores = below_zero()
    risk = OBJECTIVES[name](scores, prior=0.9, ordering=ordering, correction="reverse")
    bracket = risk.unlabeled + risk.synthetic - 0.9 * risk.inverted
    assert bracket < 0
    for found, upward in zip(
        gradients(risk.total, scores), gradients(bracket, scores), strict=True
    ):
        torch.testing.assert_close(found, -upward)
    assert gradients(risk.total, scores)[1].max() < 0  # a step down raises every unlabeled score


@every_ordering
@corrected
def test_corrections_agree_where_the_bracket_is_positive(name, ordering):
    scores = leaves(drawn())
    clamp, reverse = (
        OBJECTIVES[name](scores, prior=PRIOR, ordering=ordering, correction=c).total
        for c in ("clamp", "reverse")
    )
    assert clamp.item() == reverse.item()
    for one, other in zip(gradients(clamp, scores), gradients(reverse, scores), strict=True):
        assert torch.equal(one, other)


# --- wrong settings


@pytest.mark.parametrize("option", ["ordering", "synthetic_ordering", "correction"])
def test_an_unknown_choice_is_an_error_that_names_it(option):
    assert with_option(option)
    for name in with_option(option):
        config = Config().with_settings(
            [f"objective.name={name}", f"objective.options.{option}=sideways"]
        )
        with pytest.raises(ConfigError, match="'sideways'"):
            build_learner(checkerboard(), config)


@pytest.mark.parametrize("name", [*ORDERED, "softmax"])
def test_a_listwise_risk_refuses_weights(name):
    options = {"ordering": "listwise"} if takes(name, "ordering") else {}
    with pytest.raises(ConfigError, match="listwise"):
        OBJECTIVES[name](table(weight=doubles(WEIGHT)), **options)


@every_objective
def test_no_objective_passes_over_weights_in_silence(name):
    equal = doubles([[1 / 3] * 3, [1 / 3] * 3])
    try:
        weighted, plain = (
            OBJECTIVES[name](table(weight=w)).total for w in (doubles(WEIGHT), equal)
        )
    except ConfigError:
        return
    assert weighted.item() != pytest.approx(plain.item())


# --- contract


@every_case
def test_the_total_is_a_finite_number_with_a_gradient_for_every_score_that_counts(name, ordering):
    scores = leaves(drawn())
    risk = OBJECTIVES[name](scores, **options_of(name, ordering))
    assert all(part.shape == () and part.isfinite() for part in risk)
    positive, unlabeled, synthetic = gradients(risk.total, scores)
    for gradient in (positive, unlabeled, synthetic):
        assert gradient.isfinite().all()
    assert not unlabeled[~scores.counted].any()
    if name == "margin":  # flat beyond its margin
        assert positive.any() and unlabeled.any()
    else:
        assert positive.all() and unlabeled[scores.counted].all()
    assert bool(synthetic.any()) == bool(synthetic.all()) == (name in USES_SYNTHETIC)


@every_case
def test_the_gradient_is_that_of_differences(name, ordering):
    scores = leaves(drawn(3, 2, 2))
    inputs = [scores.positive, scores.unlabeled, scores.synthetic]
    options = options_of(name, ordering)

    def total(positive: Tensor, unlabeled: Tensor, synthetic: Tensor) -> Tensor:
        return OBJECTIVES[name](Scores(positive, unlabeled, synthetic), **options).total

    assert torch.autograd.gradcheck(total, inputs)


@every_case
def test_a_positive_pulls_up_and_an_unlabeled_pushes_down(name, ordering):
    # At scores of 0 all objectives agree which way is better. (bce's smoothed labels turn it
    # round for an unlabeled below ln(1/(C - 1)) and the positive above its own label.)
    zeros = torch.zeros(2, 3, dtype=torch.float64)
    scores = leaves(Scores(zeros[:, 0], zeros, zeros))
    risk = OBJECTIVES[name](scores, **options_of(name, ordering))
    positive, unlabeled, synthetic = gradients(risk.total, scores)
    assert (positive < 0).all() and (unlabeled > 0).all() and (synthetic >= 0).all()


@every_case
def test_the_order_of_questions_does_not_matter(name, ordering):
    scores, options = drawn(), options_of(name, ordering)
    order = torch.tensor([3, 0, 4, 1, 2])
    mixed = Scores(*(part[order] for part in scores[:4]))
    found, expected = (OBJECTIVES[name](x, **options).total for x in (mixed, scores))
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)


@every_case
def test_the_order_of_grouped_questions_does_not_matter(name, ordering):
    owner = torch.tensor([0, 1, 1, 2, 3, 4, 4, 4])
    scores = drawn()._replace(positive=drawn(len(owner), seed=2).positive, owner=owner)
    order, shuffled = torch.tensor([3, 0, 4, 1, 2]), torch.tensor([7, 2, 5, 0, 1, 3, 6, 4])
    mixed = Scores(
        scores.positive[shuffled],
        scores.unlabeled[order],
        scores.synthetic[order],
        counted=scores.counted[order],
        owner=order.argsort()[owner[shuffled]],
    )
    options = options_of(name, ordering)
    found, expected = (OBJECTIVES[name](x, **options).total for x in (mixed, scores))
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)


@every_case
@pytest.mark.parametrize("value", [1e9, -1e9])
def test_what_an_entity_that_does_not_count_scores_does_not_matter(name, ordering, value):
    scores, options = drawn(), options_of(name, ordering)
    assert not scores.counted.all()
    other = leaves(scores._replace(unlabeled=scores.unlabeled.masked_fill(~scores.counted, value)))
    found, expected = (OBJECTIVES[name](x, **options) for x in (other, scores))
    assert [x.item() for x in found] == pytest.approx([x.item() for x in expected], rel=1e-12)
    assert not gradients(found.total, other)[1][~scores.counted].any()


@every_case
def test_a_question_of_which_no_entity_counts_is_no_trouble(name, ordering):
    scores = drawn()
    scores.counted[1] = False
    asked = leaves(scores)
    total = OBJECTIVES[name](asked, **options_of(name, ordering)).total
    assert total.isfinite()
    assert all(g.isfinite().all() for g in gradients(total, asked))
    assert not gradients(total, asked)[1][1].any()


# --- extremes


@every_case
def test_scores_of_a_billion_have_finite_risks_and_gradients(name, ordering):
    for signs in itertools.product([1e9, -1e9], repeat=3):
        p, u, g = (torch.tensor(sign) for sign in signs)  # single precision, as in training
        scores = leaves(Scores(p.repeat(2), u.repeat(2, 3), g.repeat(2, 3)))
        risk = OBJECTIVES[name](scores, **options_of(name, ordering))
        assert all(part.isfinite() for part in risk), signs
        assert all(x.isfinite().all() for x in gradients(risk.total, scores)), signs


@pytest.mark.parametrize("name", ORDERED)
def test_a_billion_too_high_costs_a_billion(name):
    # softplus(x) = x for large x: an unlabeled at 1e9 beside a positive at 0.
    scores = Scores(torch.zeros(1), torch.tensor([[1e9, -1e9]]), torch.empty(1, 0))
    for ordering, part in (("pointwise", 0.5), ("pairwise", 0.5), ("listwise", 1.0)):
        risk = OBJECTIVES[name](scores, **options_of(name, ordering))
        assert risk.unlabeled.item() == pytest.approx(part * 1e9)


def without_unlabeled(name: str) -> float:
    """Return the total of the table at N = 0, pairwise."""
    if name in ("softmax", "margin"):
        return 0.0  # nothing to be ranked above
    if name == "bce":  # the answer is its question's only candidate: C = 1, label 0.9 + 1
        return (ln(3) - 1.9 * ln(2) + ln(5) - 1.9 * ln(4)) / 2
    if name == "puda":
        return pu_by_hand(R_SYNTHETIC["pairwise"])
    return PRIOR * R_POSITIVE + (R_SYNTHETIC["pairwise"] if name == "da" else 0.0)


@every_objective
def test_without_unlabeled_entities_a_risk_is_defined(name):
    nothing = torch.empty(2, 0, dtype=torch.float64)
    risk = OBJECTIVES[name](table(unlabeled=nothing), **options_of(name, "pairwise"))
    assert risk.total.item() == pytest.approx(without_unlabeled(name))
    assert risk.unlabeled.item() == 0


@every_case
def test_without_synthetic_entities_a_risk_is_defined(name, ordering):
    scores = leaves(drawn(synthetic=0))
    risk = OBJECTIVES[name](scores, **options_of(name, ordering))
    assert risk.total.isfinite()
    assert risk.synthetic.item() == 0
    assert gradients(risk.total, scores)[0].any()


@every_objective
def test_without_unlabeled_and_synthetic_entities_a_step_can_still_go_back(name):
    nothing = torch.empty(2, 0, dtype=torch.float64)
    scores = leaves(table(unlabeled=nothing, synthetic=nothing))
    total = OBJECTIVES[name](scores, **options_of(name, "pairwise")).total
    assert all(g.isfinite().all() for g in gradients(total, scores))


def test_pooled_puda_is_one_mean_over_unlabeled_and_synthetic_entities():
    scores = table()
    together = torch.cat([scores.unlabeled, scores.synthetic], dim=1)
    one_mean = torch.nn.functional.softplus(together - scores.positive[:, None]).mean()
    risk = OBJECTIVES["puda"](scores, prior=0.0, pooled=True)
    assert risk.total.item() == pytest.approx(one_mean.item())
    assert risk.total.item() != pytest.approx(OBJECTIVES["puda"](scores, prior=0.0).total.item())
