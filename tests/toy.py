"""Three toy graphs whose missing facts are known: a ring, a family tree, a checkerboard."""

from puda.data.graph import KnowledgeGraph

Fact = tuple[str, str, str]


def ring(size: int = 12) -> KnowledgeGraph:
    """Stations around a circle: `next` whole, of its inverse `previous` a part is held out."""
    station = [f"s{i:02d}" for i in range(size)]
    onward = [(station[i - 1], "next", station[i]) for i in range(size)]
    back = [(tail, "previous", head) for head, _, tail in onward]
    valid, test = back[0::6], back[3::6]
    train = onward + [fact for fact in back if fact not in valid + test]
    return KnowledgeGraph.from_facts(train, valid=valid, test=test, name="ring")


def family_tree(generations: int = 4) -> KnowledgeGraph:
    """Couples of persons x and spouse x*, each couple with the children x0 and x1.

    `child of` is the inverse of `parent of`; `married to` and `sibling of` are symmetric. What is
    held out of them is mirrored in train; every `parent of` stays.
    """
    persons = ["a"]
    for _ in range(generations - 1):
        persons += [p + child for p in persons if len(p) == len(persons[-1]) for child in "01"]
    couples = [(p, p + "*") for p in persons]
    parents = [
        (parent, "parent of", person)
        for person in persons[1:]
        for parent in (person[:-1], person[:-1] + "*")
    ]
    children = [(child, "child of", parent) for parent, _, child in parents]
    married = [fact for x, y in couples for fact in _both_ways(x, "married to", y)]
    siblings = [fact for p in persons if p + "0" in persons for fact in _siblings(p + "0", p + "1")]
    mirrored = children[0::4] + married[0::6] + siblings[1::6]
    valid, test = mirrored[0::2], mirrored[1::2]
    facts = parents + children + married + siblings
    train = [fact for fact in facts if fact not in mirrored]
    return KnowledgeGraph.from_facts(train, valid=valid, test=test, name="family tree")


def checkerboard(size: int = 8) -> KnowledgeGraph:
    """People like the things of their own parity and dislike the others (`size` is even).

    Of each person one like is in test and one dislike in valid.
    """
    valid: list[Fact] = []
    test: list[Fact] = []
    train: list[Fact] = []
    for person in range(size):
        for thing in range(size):
            relation = "likes" if person % 2 == thing % 2 else "dislikes"
            held_out = {person: test, (person + 1) % size: valid}.get(thing, train)
            held_out.append((f"person {person}", relation, f"thing {thing}"))
    return KnowledgeGraph.from_facts(train, valid=valid, test=test, name="checkerboard")


def labels(graph: KnowledgeGraph, split: str) -> set[Fact]:
    """Return the facts of a split as labels."""
    entity, relation = graph.entities.labels, graph.relations.labels
    return {(entity[h], relation[r], entity[t]) for h, r, t in graph.facts(split).tolist()}


def _both_ways(one: str, relation: str, other: str) -> list[Fact]:
    return [(one, relation, other), (other, relation, one)]


def _siblings(one: str, other: str) -> list[Fact]:
    return _both_ways(one, "sibling of", other)
