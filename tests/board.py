"""A graph whose missing facts are known, with labels that a page must not take for its own."""

from puda.data.graph import KnowledgeGraph

SIZE = 24
SCRIPT = "<script>document.title='taken'</script>"
IMAGE = '"><img src=x onerror="document.title=\'taken\'">'
DISLIKES = "dis<b>likes</b> & 'hates'"

Fact = tuple[str, str, str]


def person(i: int) -> str:
    return IMAGE if i == 7 else f"person {i}"


def thing(i: int) -> str:
    return SCRIPT if i == 5 else f"thing {i}"


def missing(i: int) -> Fact:
    """The like of a person that no split holds."""
    return person(i), "likes", thing((i + 6) % SIZE)


def board() -> KnowledgeGraph:
    """People like the things of their own parity and dislike the others; one like is missing."""
    train: list[Fact] = []
    valid: list[Fact] = []
    test: list[Fact] = []
    for i in range(SIZE):
        for j in range(SIZE):
            fact = person(i), "likes" if i % 2 == j % 2 else DISLIKES, thing(j)
            places = {i: test, (i + 2) % SIZE: valid, (i + 1) % SIZE: valid}
            if fact != missing(i):
                places.get(j, train).append(fact)
    return KnowledgeGraph.from_facts(train, valid=valid, test=test, name="board")
