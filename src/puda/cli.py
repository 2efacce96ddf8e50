"""The command line: `puda train`, `resume`, `evaluate`, `predict`, `check`, `bench`, `datasets` ...

Heavy modules are imported inside the commands, so that `puda --help` answers at once. With --json
a command prints one JSON document on standard output and nothing else there.
"""

import gc
import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from puda import __version__
from puda.errors import ConfigError, PudaError

app = typer.Typer(
    help="Completes knowledge graphs: which facts are probably missing, and how plausible.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

Source = Annotated[
    str, typer.Argument(help="A file of facts, a folder with train/valid/test, or a data set.")
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, nothing else.")]
Columns = Annotated[
    str | None,
    typer.Option(help="Which columns to read: head=subject,relation=predicate,tail=object."),
]
Memory = Annotated[
    int | None,
    typer.Option(min=1, help="Megabytes for scores; default: a quarter of what is free."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any setting, repeatable."),
]


def main() -> None:
    """Run a command; an error that the user can mend is one line and exit code 2."""
    # Imports make 200,000 objects that stay: looks at all of them take a tenth of the start.
    gc.set_threshold(100_000)
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except PudaError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has gone, e.g. `puda predict ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)


@app.callback()
def prepare(
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import", metavar="MODULE", help="Import a module that registers a model of yours."
        ),
    ] = None,
) -> None:
    """Import the user's own modules, from the current folder too, before a command runs."""
    sys.path.insert(0, str(Path.cwd()))
    for module in modules or []:
        try:
            import_module(module)
        except ImportError as error:
            raise PudaError(f"--import {module}: {error}") from error


def _print_json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _draw(svg: Path | None, drawing: Callable[[], str]) -> None:
    """Write a picture if one is wanted."""
    from puda.runs import replacing

    if svg is not None:
        with replacing(svg) as part:
            part.write_text(drawing(), encoding="utf-8")


@app.command()
def train(
    source: Source,
    out: Annotated[
        Path | None, typer.Option(help="New folder of the run; default runs/<name of the source>.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Settings by name: best (the default), paper or fast.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Train so long; the learning rate falls over it.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same result.")] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Train so many models that predict together.")
    ] = 1,
    scoring: Annotated[str | None, typer.Option(help="Scoring function by name.")] = None,
    objective: Annotated[str | None, typer.Option(help="Objective by name.")] = None,
    sampler: Annotated[str | None, typer.Option(help="Sampler by name.")] = None,
    columns: Columns = None,
    verdicts: Annotated[
        str | None,
        typer.Option(help="Learn from people's verdicts: a file, or the database of puda serve."),
    ] = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Train on a graph and measure the result.

    Example: puda train facts.tsv --out runs/mine --minutes 5
    """
    from puda import config as configs
    from puda import display
    from puda.api import train as run_training
    from puda.data.check import check as check_graph
    from puda.data.files import parse_columns
    from puda.data.source import load

    named = {
        "training.minutes": minutes,
        "training.seed": seed,
        "scoring.name": scoring,
        "objective.name": objective,
        "sampler.name": sampler,
    }
    given = [f"{key}={value}" for key, value in named.items() if value is not None]
    if preset and config:
        raise ConfigError("--preset and --config both say all settings: give one of them")
    chosen = configs.read(config) if config else configs.preset(preset or "best")
    chosen = chosen.with_settings([*given, *(settings or [])])
    graph, reports = load(
        source,
        columns=parse_columns(columns) if columns else None,
        valid=chosen.data.valid,
        test=chosen.data.test,
        seed=chosen.data.seed,
    )
    if verdicts is not None:
        from puda.verdicts import heed_rejected, judge, settle

        settled = settle(_read_verdicts(verdicts, graph.name))
        graph, chosen = judge(graph, settled), heed_rejected(chosen, settled)
        display.show_settled(settled)
    display.show_reading(graph, reports, check_graph(graph).warnings())
    with display.training_progress(chosen) as listener:
        path = out or Path("runs") / graph.name
        run = run_training(graph, path, config=chosen, seeds=seeds, listener=listener)
    _show_outcome(run, as_json)


def _read_verdicts(source: str, graph: str) -> Any:
    """Read a file of verdicts, or those on a graph from a database."""
    from puda.verdicts import read

    if "://" not in source and not source.endswith((".sqlite", ".db")):
        return read(source)
    if "://" not in source and not Path(source).is_file():
        raise PudaError(f"there is no database {source}")
    _need_web("--verdicts from a database")
    from puda.serve.store import Store

    return Store(source).latest(graph)


def _need_web(what: str) -> None:
    from importlib.util import find_spec

    needed = ("fastapi", "uvicorn", "sqlalchemy", "rapidfuzz")
    missing = [name for name in needed if not find_spec(name)]
    if missing:
        raise PudaError(f"{what} needs {', '.join(missing)}: pip install 'puda[web]'")


@app.command()
def resume(run: RunPath, as_json: Json = False) -> None:
    """Go on with a run that was interrupted or killed.

    Example: puda resume runs/mine
    """
    from puda import display
    from puda.api import resume as resume_training
    from puda.runs import RunFolder

    with display.training_progress(RunFolder(run).load_config()) as listener:
        resumed = resume_training(run, listener=listener)
    _show_outcome(resumed, as_json)


def _show_outcome(run: Any, as_json: bool) -> None:
    from puda import display

    if as_json:
        _print_json({"run": str(run.path), "finished": not run.folder.resumable, **run.metrics})
    elif run.folder.resumable:
        display.show_text(f"Stopped. The best so far is in {run.path}; puda resume goes on.")
    else:
        display.show_metrics(run.metrics)
        display.show_text(f"The run is in {run.path}.")


@app.command()
def evaluate(
    run: RunPath,
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "test",
    relations: Annotated[bool, typer.Option(help="Show each relation too.")] = False,
    memory: Memory = None,
    as_json: Json = False,
) -> None:
    """Measure a run: tail, head and both sides, beside trivial baselines.

    Example: puda evaluate runs/mine --relations
    """
    from puda import display
    from puda.api import open_run

    metrics = open_run(run).evaluate(split, memory=memory)
    if as_json:
        _print_json(metrics)
    else:
        display.show_metrics(metrics, breakdowns=True, relations=relations)


@app.command()
def predict(
    run: RunPath,
    head: Annotated[str | None, typer.Option(help="An entity.")] = None,
    relation: Annotated[str | None, typer.Option(help="A relation.")] = None,
    tail: Annotated[str | None, typer.Option(help="An entity.")] = None,
    k: Annotated[int, typer.Option("-k", help="How many answers.")] = 10,
    include_known: Annotated[bool, typer.Option(help="Also facts that are known.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File for the answers, e.g. answers.tsv.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Complete a fact: give two of --head, --relation and --tail, get the third.

    Example: puda predict runs/world --head France --relation borders -k 10
    """
    import polars as pl

    from puda import display, exports
    from puda.api import open_run
    from puda.types import Prediction

    if out is not None:
        exports.writer(out)
    opened, asked = open_run(run), {"head": head, "relation": relation, "tail": tail}
    answers = opened.predict(**asked, k=k, include_known=include_known)
    if out is not None:
        exports.write_facts(pl.DataFrame(answers, schema=Prediction._fields, orient="row"), out)
    if as_json:
        _print_json([answer._asdict() for answer in answers])
    else:
        display.show_predictions(answers, **asked, promised=opened.promise(**asked))


@app.command()
def calibrate(
    run: RunPath,
    svg: Annotated[
        Path | None, typer.Option(help="Draw what came true over what was said into this file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Turn a run's scores into probabilities, and check them on the test facts.

    Training does this at its end; do it again for a run of an older version. Example: puda
    calibrate runs/mine --svg reliability.svg
    """
    from puda import display
    from puda.api import open_run
    from puda.calibrate import COVERAGE, check, cover
    from puda.pictures import draw_reliability

    opened = open_run(run)
    calibration = opened.calibrate()
    found = check(opened.trained, calibration)
    covered = cover(opened.trained, calibration)
    what = "annotated true negatives" if calibration.negatives else "all other candidates"
    title = f"test facts among {what}"
    _draw(svg, lambda: draw_reliability(found, title))
    if as_json:
        missing = calibration.missing
        _print_json({**found._asdict(), "coverage": covered._asdict(), "missing": missing})
    else:
        display.show_reliability(found, title)
        if calibration.missing is not None:
            display.show_text(
                f"About {calibration.missing:,.0f} facts are missing from training and validation,"
                f" of which test has {len(opened.trained.graph.test):,}"
            )
        display.show_text(
            f"Answer sets hold {covered.overall:.1%} of the test facts' answers,"
            f" {COVERAGE:.0%} are promised"
        )


@app.command()
def complete(
    run: RunPath,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="File: .parquet, .tsv, .csv, .jsonl or .nt."),
    ],
    top: Annotated[int | None, typer.Option(help="So many facts in all; default 10,000.")] = None,
    per_relation: Annotated[int | None, typer.Option(help="So many of each relation.")] = None,
    minimum: Annotated[float | None, typer.Option(help="None that is less probable.")] = None,
    relation: Annotated[
        list[str] | None, typer.Option(help="Only this relation, repeatable.")
    ] = None,
    prune: Annotated[
        bool, typer.Option(help="Only entities that look like the relation's heads and tails.")
    ] = True,
    memory: Memory = None,
    svg: Annotated[
        Path | None, typer.Option(help="Draw how many are expected to be true into this file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the most plausible missing facts of the whole graph; a killed job goes on.

    Example: puda complete runs/mine -o missing.parquet --per-relation 100
    """
    from puda import display
    from puda.api import open_run
    from puda.complete import estimate
    from puda.pictures import draw_expected

    opened = open_run(run)
    if svg is not None and opened.calibration is None:
        raise PudaError(f"{run} has no probabilities to draw: puda calibrate fits them")
    if top is None and per_relation is None:
        top = 10_000
    cost = estimate(
        opened.trained,
        limit=top or per_relation,
        relations=relation,
        pruned=prune,
        calibration=opened.calibration,
        memory=memory,
    )
    display.show_estimate(cost)
    with display.counting("relations") as listener:
        facts = opened.complete(
            out,
            top=top,
            per_relation=per_relation,
            minimum=minimum,
            relations=relation,
            pruned=prune,
            memory=memory,
            listener=listener,
        )
    chances = facts["probability"].to_list() if "probability" in facts.columns else None
    _draw(
        svg, lambda: draw_expected(chances or [], f"missing facts of {opened.trained.graph.name}")
    )
    expected = None if chances is None else sum(chances)
    if as_json:
        _print_json({"out": str(out), "facts": len(facts), "expected": expected, **cost._asdict()})
    else:
        display.show_facts(facts.head(10))
        true = "" if expected is None else f", of which {expected:,.1f} are expected to be true"
        display.show_text(f"{len(facts):,} facts are in {out}{true}.")


@app.command()
def explain(
    run: RunPath,
    head: Annotated[str, typer.Argument(help="An entity.")],
    relation: Annotated[str, typer.Argument(help="A relation.")],
    tail: Annotated[str, typer.Argument(help="An entity.")],
    k: Annotated[int, typer.Option("-k", help="How many reasons of each kind.")] = 5,
    svg: Annotated[
        Path | None, typer.Option(help="Draw the paths that lead to the fact into this file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say why a fact is plausible: rules, facts like it, what it was learned from, its rivals.

    Example: puda explain runs/world France borders Spain --svg why.svg
    """
    from puda import display
    from puda.api import open_run

    found = open_run(run).explain(head, relation, tail, k=k)
    _draw(svg, found.to_svg)
    if as_json:
        _print_json(found.to_dict())
    else:
        display.show_text(found.to_text().rstrip())


@app.command()
def embeddings(
    run: RunPath,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File: .parquet, or .tsv for TensorBoard.")
    ],
    as_json: Json = False,
) -> None:
    """Write the vectors of all entities.

    As .tsv they come as TensorBoard's projector takes them, labels in a second file. Example: puda
    embeddings runs/mine -o vectors.parquet
    """
    from puda import display, exports
    from puda.api import open_run

    written = exports.write_embeddings(open_run(run).embeddings(), out)
    if as_json:
        _print_json({"files": [str(path) for path in written]})
    else:
        display.show_text(f"Written to {' and '.join(str(path) for path in written)}.")


@app.command()
def serve(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")],
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="PUDA_TOKEN", help="What callers must know; a must beyond this machine."
        ),
    ] = None,
    verdicts: Annotated[
        str | None,
        typer.Option(help="Database: a file or an SQLAlchemy URL; default verdicts.sqlite there."),
    ] = None,
) -> None:
    """Open runs as a page: ask, see why, judge, measure, compare.

    Example: puda serve runs/world
    """
    _need_web("puda serve")
    from puda import display
    from puda.serve.server import serve as serve_runs

    serve_runs(runs, host=host, port=port, token=token, verdicts=verdicts, tell=display.show_text)


@app.command()
def audit(
    run: RunPath,
    folds: Annotated[
        int, typer.Option(help="Models, each trained without a part of the facts.")
    ] = 5,
    k: Annotated[int, typer.Option("-k", min=1, help="How many facts to show.")] = 20,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File for all facts, e.g. doubts.tsv.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Draw how fast doubt falls along the list into this file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List known facts that the rest of the graph speaks against: where errors may be.

    Example: puda audit runs/mine -k 50
    """
    from puda import display, exports
    from puda.api import open_run
    from puda.pictures import draw_doubt

    if out is not None:
        exports.writer(out)
    opened = open_run(run)
    with display.counting("folds") as listener:
        facts = opened.audit(folds=folds, listener=listener)
    if out is not None:
        exports.write_facts(facts, out)
    doubts = facts["doubt"].drop_nulls().to_list()
    _draw(svg, lambda: draw_doubt(doubts, f"known facts of {opened.trained.graph.name}"))
    if as_json:
        _print_json(facts.head(k).to_dicts())
    else:
        display.show_facts(facts.head(k))


@app.command()
def add(
    run: RunPath,
    source: Annotated[str, typer.Argument(help="A file of facts; its entities may be new.")],
    out: Annotated[Path, typer.Option(help="New folder of the run.")],
    as_json: Json = False,
) -> None:
    """Add facts and new entities to a run without retraining.

    Only the new entities are learned, from their facts. Example: puda add runs/mine new.tsv --out
    runs/mine-2
    """
    from puda import display
    from puda.api import open_run

    before = open_run(run)
    after = before.add_facts(source, out)
    grown, graph = after.trained.graph, before.trained.graph
    entities, facts = grown.num_entities - graph.num_entities, len(grown.train) - len(graph.train)
    if as_json:
        _print_json({"out": str(out), "entities": entities, "facts": facts})
    else:
        text = f"{entities:,} new entities, {facts:,} new facts. The run is in {out}."
        display.show_text(text)


@app.command()
def bench(
    source: Annotated[
        str | None,
        typer.Argument(
            help="A graph to measure on; default: an artificial one of FB15k-237's shape."
        ),
    ] = None,
    scoring: Annotated[str, typer.Option(help="Scoring function by name.")] = "distmult",
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Measure how fast this machine trains and ranks; less than a minute.

    With PyKEEN installed, the same is done by it as well. Example: puda bench --scoring rotate
    """
    from puda import bench as benches
    from puda import display
    from puda.api import load
    from puda.data.artificial import SHAPES, artificial_graph
    from puda.machine import keep_freed_memory

    keep_freed_memory()
    graph = load(source) if source else artificial_graph(*SHAPES["fb15k-237"])
    config = benches.CONFIG.with_settings([f"scoring.name={scoring}", *(settings or [])])
    figures = benches.bench(graph, config)
    if as_json:
        _print_json(figures)
    else:
        display.show_bench(figures)


@app.command()
def reproduce(
    table: Annotated[
        str,
        typer.Argument(help="table1, table2, table3, table5, figure-prior, hidden, ours or all."),
    ],
    dataset: Annotated[str | None, typer.Option(help="Only experiments on this data set.")] = None,
    only: Annotated[str | None, typer.Option(help="Only this file, e.g. distmult.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Budget of a run; default: what its file says.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs of each; default: what its file says.")
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where the experiment files are.")] = Path(
        "experiments"
    ),
    runs: Annotated[Path, typer.Option(help="Where the runs go.")] = Path("runs/reproduce"),
    page: Annotated[Path, typer.Option(help="The page to write.")] = Path("docs/results.md"),
) -> None:
    """Reproduce the paper's tables: run what is missing, then write the page of results.

    Finished runs are kept in the experiment files, interrupted ones go on. Example: puda reproduce
    table1 --dataset wn18rr
    """
    from puda import display, experiments, paper, results

    files = experiments.find(folder, table, dataset=dataset, only=only)
    try:
        paper.reproduce(
            files,
            runs,
            seeds=seeds,
            minutes=minutes,
            watch=display.training_progress,
            tell=display.show_text,
        )
    finally:  # an interruption, too, leaves a page of what is finished
        notes = results.write(experiments.find(folder, "all"), page, folder / "findings.toml")
        display.show_text(f"The results are in {page}.")
        for note in notes:
            display.show_text(note)


@app.command()
def check(source: Source, columns: Columns = None, as_json: Json = False) -> None:
    """Report on a graph before training: leaks, duplicates, unseen entities, shape.

    Example: puda check facts.tsv
    """
    from puda import display
    from puda.data.check import check as check_graph
    from puda.data.files import parse_columns
    from puda.data.source import load

    graph, reports = load(source, columns=parse_columns(columns) if columns else None)
    report = check_graph(graph)
    if as_json:
        _print_json(report.to_dict() | {"warnings": report.warnings()})
    else:
        display.show_reading(graph, reports, report.warnings())
        display.show_check(report)


@app.command()
def datasets(as_json: Json = False) -> None:
    """List the data sets that can be named as a source.

    Example: puda train fb15k-237 --minutes 10
    """
    from puda import display
    from puda.data.datasets import DATASETS, here

    rows = [
        {
            "name": name,
            "description": dataset.description,
            "here": all(here(remote) for remote in dataset.files),
            "urls": [remote.url for remote in dataset.files],
        }
        for name, dataset in DATASETS.items()
    ]
    if as_json:
        _print_json(rows)
    else:
        display.show_datasets(rows)


@app.command()
def version(as_json: Json = False) -> None:
    """Print the version."""
    if as_json:
        _print_json({"version": __version__})
    else:
        sys.stdout.write(f"puda {__version__}\n")
