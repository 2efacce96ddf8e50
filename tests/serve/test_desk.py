"""Whoever waits is answered: by this process, or by one of its own."""

import asyncio
import os
import signal
from concurrent.futures import wait

import pytest

from puda.errors import Diverged
from puda.serve import backroom as rooms
from puda.serve import desk as desks
from puda.serve.answers import Answers, Asked
from puda.serve.backroom import Backroom
from puda.serve.desk import Desk
from puda.types import Side

ONE = Asked(0, 0, Side.TAIL, 2)
SOME = [Asked(anchor, 0, side, 3) for anchor in range(5) for side in Side]


@pytest.fixture
def desk(run):
    desk = Desk(Answers(run))
    yield desk
    desk.close()


@pytest.fixture
def backroom(run):
    backroom = Backroom({"board": run})
    yield backroom
    backroom.close()


def assert_alike(found, expected) -> None:
    """Compare answers to several questions; other products may differ in the last digits."""
    for own, other in zip(found, expected, strict=True):
        assert [a[:3] + (a.rank, a.known) for a in own] == [
            a[:3] + (a.rank, a.known) for a in other
        ]
        for kind in ("score", "probability"):
            values = [[getattr(a, kind) for a in answers] for answers in (own, other)]
            assert values[0] == pytest.approx(values[1], rel=1e-4)


def test_waiting_questions_get_their_own_answers(run, desk):
    futures = [desk.submit(asked) for asked in SOME]
    wait(futures, timeout=30)
    assert_alike([future.result() for future in futures], Answers(run).answer(SOME))


def test_whoever_asks_again_is_told_what_is_kept(run, monkeypatch):
    monkeypatch.setattr(desks, "PAGES", 6)
    answers = Answers(run)
    desk = Desk(answers)
    asked: list[list[Asked]] = []
    here = answers.answer
    answers.answer = lambda batch: (asked.append(batch), here(batch))[1]

    async def ask() -> None:
        first = await desk.ask(ONE)
        assert await desk.ask(ONE) is first
        for other in SOME:  # each of three answers: there is room for one
            await desk.ask(other)
        assert len(desk._pages) == 1
        await desk.ask(ONE)

    asyncio.run(ask())
    assert [len(batch) for batch in asked] == [1] * (len(SOME) + 2)
    desk.close()


def test_an_error_reaches_who_asked_and_the_next_question_is_answered(desk, monkeypatch):
    def diverge(batch):
        raise Diverged("not finite")

    with monkeypatch.context() as broken:
        broken.setattr(desk.answers, "answer", diverge)
        with pytest.raises(Diverged):
            desk.submit(ONE).result(timeout=30)
    assert len(desk.submit(ONE).result(timeout=30)) == 2


def test_a_process_of_its_own_answers_alike(run, backroom):
    assert_alike(backroom.answer("board", SOME), Answers(run).answer(SOME))


def test_an_error_of_the_other_process_reaches_who_asked(backroom):
    with pytest.raises(KeyError, match="chess"):
        backroom.answer("chess", [ONE])
    with pytest.raises(IndexError):
        backroom.answer("board", [ONE._replace(anchor=10**6)])
    assert len(backroom.answer("board", [ONE])[0]) == 2


def test_the_desk_asks_the_backroom_and_answers_itself_when_that_is_gone(run, backroom):
    class Away(Exception):
        pass

    answers = Answers(run)
    expected = answers.answer([ONE])
    desk = Desk(answers, name="board", backroom=backroom)
    here = answers.answer
    answers.answer = lambda batch: (_ for _ in ()).throw(Away)  # from now on not by this process
    assert_alike([desk.submit(ONE).result(timeout=30)], expected)
    os.kill(backroom.process.pid, signal.SIGKILL)
    backroom.process.join()
    with pytest.raises(Away):
        desk.submit(ONE).result(timeout=30)
    answers.answer = here
    assert_alike([desk.submit(ONE).result(timeout=30)], expected)
    desk.close()


def test_it_suits_tables_that_one_thread_can_read(run, monkeypatch):
    assert Backroom.suits({"board": run})
    monkeypatch.setattr(rooms, "ALONE", 1)
    assert not Backroom.suits({"board": run})
    monkeypatch.undo()
    monkeypatch.setattr(rooms.sys, "platform", "win32")
    assert not Backroom.suits({"board": run})


def test_an_interrupt_is_not_for_the_backroom(backroom):
    assert len(backroom.answer("board", [ONE])[0]) == 2
    os.kill(backroom.process.pid, signal.SIGINT)
    assert len(backroom.answer("board", [ONE])[0]) == 2
