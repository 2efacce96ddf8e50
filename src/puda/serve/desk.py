"""Where questions wait until they are answered, all that wait together."""

import asyncio
import threading
from concurrent.futures import Future
from queue import SimpleQueue

from puda.serve.answers import Answers, Asked, Kept
from puda.serve.backroom import Backroom
from puda.types import Prediction

TOGETHER = 32  # most questions answered at a time
PAGES = 100_000  # answers that are kept for whoever asks again; each has some 500 bytes


class Desk:
    """Takes questions about one run; a thread of its own has them answered.

    By a backroom, where there is one that has not broken down; otherwise by this process.
    """

    def __init__(
        self, answers: Answers, *, name: str = "", backroom: Backroom | None = None
    ) -> None:
        self.answers, self.name, self.backroom = answers, name, backroom
        self._pages: Kept[Asked, list[Prediction]] = Kept(PAGES, lambda page: 1 + len(page))
        self._waiting: SimpleQueue[tuple[Asked, Future[list[Prediction]]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="answers", daemon=True)
        self._thread.start()

    async def ask(self, asked: Asked) -> list[Prediction]:
        """Answer a question, together with those that others ask meanwhile."""
        if asked in (kept := self._pages.find([asked])):
            return kept[asked]
        return await asyncio.wrap_future(self.submit(asked))

    def submit(self, asked: Asked) -> Future[list[Prediction]]:
        """Put a question into the queue."""
        future: Future[list[Prediction]] = Future()
        self._waiting.put((asked, future))
        return future

    def close(self) -> None:
        """Answer what waits, then stop."""
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        self.answers.prepare()
        while (first := self._waiting.get()) is not None:
            batch = [first]
            while len(batch) < TOGETHER and not self._waiting.empty():
                following = self._waiting.get()
                if following is None:
                    self._waiting.put(None)
                    break
                batch.append(following)
            try:
                found = self._answer([asked for asked, _ in batch])
            except Exception as error:  # whatever it is, those who wait must hear of it
                for _, future in batch:
                    future.set_exception(error)
            else:
                self._pages.keep(
                    {asked: page for (asked, _), page in zip(batch, found, strict=True)}
                )
                for (_, future), predictions in zip(batch, found, strict=True):
                    if not future.cancelled():
                        future.set_result(predictions)

    def _answer(self, batch: list[Asked]) -> list[list[Prediction]]:
        if self.backroom is not None:
            try:
                return self.backroom.answer(self.name, batch)
            except (EOFError, OSError):  # it is gone: somebody has to answer
                self.backroom = None
        return self.answers.answer(batch)
