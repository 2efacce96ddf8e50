"""N-Triples and Turtle, apart because only they need the optional pyoxigraph."""

import re
from pathlib import Path

from puda.errors import DataError

_TURTLE_START = re.compile(r"\s*(@prefix|@base|prefix\s+\S*:\s*<|base\s+<)", re.IGNORECASE)
_NTRIPLES_LINE = re.compile(r"\s*(<[^>]*>|_:\S+)\s*<[^>]*>\s*[<_\"].*\.\s*(#.*)?$")


def rdf_format(path: Path, first_line: str) -> str | None:
    """Name the RDF format of a file from its first statement; None if it is not RDF.

    Turtle need not show itself in its first line, so here the endings count as well.
    """
    endings = path.suffixes[-2:]
    if ".ttl" in endings or _TURTLE_START.match(first_line):
        return "turtle"
    if ".nt" in endings or _NTRIPLES_LINE.match(first_line):
        return "n-triples"
    return None


def read_rdf(text: str, *, format: str, source: str) -> tuple[list[tuple[str, str, str]], int]:
    """Return the facts between nodes and the number of statements with a literal object."""
    try:
        import pyoxigraph
    except ImportError:
        raise DataError(
            f"{source} holds {format}, which needs pyoxigraph: pip install 'puda[rdf]'"
        ) from None
    names = {
        "turtle": pyoxigraph.RdfFormat.TURTLE,
        "n-triples": pyoxigraph.RdfFormat.N_TRIPLES,
    }

    def label(node: pyoxigraph.NamedNode | pyoxigraph.BlankNode) -> str:
        return node.value if isinstance(node, pyoxigraph.NamedNode) else str(node)

    facts = []
    literals = 0
    try:
        # lenient: published graphs hold relative or badly escaped IRIs; to us they are labels.
        for fact in pyoxigraph.parse(text, names[format], lenient=True):
            if isinstance(fact.object, pyoxigraph.Literal):
                literals += 1
            else:
                facts.append((label(fact.subject), fact.predicate.value, label(fact.object)))
    except SyntaxError as error:
        raise DataError(f"{source} is not valid {format}: {error.msg}") from None
    return facts, literals
