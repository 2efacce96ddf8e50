"""Labels and their dense ids, and forgiving look-up of what a person types."""

import difflib
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import polars as pl

from puda.errors import DataError, LabelError
from puda.types import Ids


class Vocabulary:
    """Labels in code-point order; the id of a label is its place, whatever the input's order."""

    def __init__(self, labels: Sequence[str], *, kind: str) -> None:
        self.labels = list(labels)
        self.kind = kind  # "entity" or "relation", for messages

    @classmethod
    def of(cls, *columns: pl.Series, kind: str) -> "Vocabulary":
        """Collect the distinct labels of some columns."""
        return cls(pl.concat(columns).unique().sort().to_list(), kind=kind)

    def __len__(self) -> int:
        return len(self.labels)

    def __contains__(self, label: str) -> bool:
        return label in self._ids

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.labels)}

    @cached_property
    def _folded(self) -> dict[str, list[int]]:
        folded: dict[str, list[int]] = {}
        for i, label in enumerate(self.labels):
            folded.setdefault(label.casefold(), []).append(i)
        return folded

    def encode(self, column: pl.Series) -> Ids:
        """Turn a column of labels into ids; an unknown label is an error."""
        known = pl.DataFrame({"label": self.labels, "id": np.arange(len(self))})
        ids = pl.DataFrame({"label": column}).join(
            known, on="label", how="left", maintain_order="left"
        )["id"]
        if ids.null_count():
            stranger = column.filter(ids.is_null())[0]
            raise DataError(f"the {self.kind} {stranger!r} is not in the vocabulary")
        return ids.to_numpy().astype(np.int64)

    def find(self, text: str) -> int:
        """Return the id that a person means: exact, then without case, then a unique prefix.

        Anything else is a LabelError that names the nearest labels.
        """
        if text in self._ids:
            return self._ids[text]
        folded = text.strip().casefold()
        hits = self._folded.get(folded) or [
            i
            for label, ids in self._folded.items()
            if folded and label.startswith(folded)
            for i in ids
        ]
        if len(hits) == 1:
            return hits[0]
        if hits:
            shown = ", ".join(repr(self.labels[i]) for i in hits[:5])
            more = f" and {len(hits) - 5} more" if len(hits) > 5 else ""
            raise LabelError(f"the {self.kind} {text!r} could be {shown}{more}: write it out")
        near = difflib.get_close_matches(folded, self._folded, n=3, cutoff=0.5)
        hint = ", ".join(repr(self.labels[self._folded[label][0]]) for label in near)
        raise LabelError(
            f"no {self.kind} {text!r} in this graph" + (f"; nearest: {hint}" if hint else "")
        )
