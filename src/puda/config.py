"""Every setting, typed and checked when it is read: an unknown key names the nearest known one."""

import difflib
import inspect
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from puda.errors import ConfigError

Options = dict[str, bool | int | float | str]
"""Settings of one registry entry alone; checked against its signature by `accepted`."""


# Kinds that registry entries give to their options in their signatures.
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]


PRESETS = ("best", "paper", "fast")


class Section(BaseModel):
    """A group of settings that cannot be changed once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def of(cls, values: Mapping[str, Any], *, source: str = "config") -> Self:
        """Check nested values; an error carries the path of the bad key."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(f"{source}: {_explain(cls, error)}") from None


class Chosen(Section):
    """A registry entry by name, with options of its own."""

    @model_validator(mode="before")
    @classmethod
    def _own_defaults(cls, values: Any) -> Any:
        """Give an entry that is named the entry's own defaults, not the default entry's options."""
        if not isinstance(values, dict):
            return values
        own = {} if "name" in values else cls.model_fields["options"].default
        given = values.get("options", {})
        return {**values, "options": {**own, **given} if isinstance(given, dict) else given}


class DataConfig(Section):
    """Where facts come from and how they are held out."""

    valid: float = Field(0.05, ge=0, lt=1)  # share held out of a source that has no split
    test: float = Field(0.05, ge=0, lt=1)
    seed: int = 0  # of the split: it stays while `training.seed` varies


class ScoringConfig(Chosen):
    """The scoring function."""

    name: str = "complex"
    dim: int = Field(256, ge=1)  # floats of one entity
    dropout: float = Field(0.0, ge=0, lt=1)  # on question vectors
    start: str | None = None  # a run folder whose entities and like-named weights to start from
    options: Options = {}


class ObjectiveConfig(Chosen):
    """The risk that training minimises; by default PUDA in its listwise ordering.

    An objective that is named has its own defaults: "puda" is then the paper's Eq. 16.
    """

    name: str = "puda"
    options: Options = {"ordering": "listwise"}
    # pi: what `options.prior` says for all, or a question's share of entities that answer it,
    # estimated for each relation and side (puda.priors).
    prior: Literal["fixed", "estimated"] = "fixed"
    regularizer: str = "n3"
    weight: float = Field(0.05, ge=0)  # of the regularizer
    relation_weight: float = Field(0.0, ge=0)  # of predicting the relation as well
    relation_share: float = Field(1.0, gt=0, le=1)  # of a batch's facts for which it is predicted


class SamplerConfig(Chosen):
    """How unlabeled entities are drawn."""

    name: str = "uniform"
    num_unlabeled: int = Field(1024, ge=0)  # N; of a shared pool, its size
    options: Options = {}


class GeneratorConfig(Section):
    """The generator of synthetic entities (Eq. 12)."""

    num_synthetic: int = Field(32, ge=0)  # M; 0 trains without a generator
    noise_dim: int | None = Field(None, ge=1)  # default: as an entity's row; authors' code: d/8
    noise_std: float = Field(1.0, gt=0)  # square root of the paper's delta
    activation: Literal["relu", "leaky"] = "relu"
    dropout: float = Field(0.5, ge=0, lt=1)
    learning_rate: float = Field(1e-4, gt=0)  # of its Adam
    steps: int = Field(1, ge=1)  # for each of the discriminator's
    # One draw of entities for both, which step at once; or fresh entities for the generator's own
    # step, which comes before the discriminator's (authors' code) or after it (paper).
    order: Literal["together", "before", "after"] = "together"


class OptimizerConfig(Section):
    """The discriminator's optimiser."""

    name: Literal["adagrad", "adam"] = "adagrad"  # adam is lazy on entities: untouched rows rest
    learning_rate: float = Field(0.1, gt=0)


class TrainingConfig(Section):
    """The loop."""

    epochs: int = Field(50, ge=1)
    minutes: float | None = Field(None, gt=0)  # if set, the budget instead of `epochs`
    batch_size: int = Field(1024, ge=1)  # questions a step
    grouped: bool = False  # a batch holds distinct questions, each with all its answers
    sides: Literal["both", "bernoulli"] = "both"  # of each fact in an epoch
    # Of facts in a risk: all alike, less the more answers both of their questions have, or such
    # that questions weigh alike, whatever the number of their answers.
    weights: Literal["even", "subsampled", "by_question"] = "even"
    halved: bool = False  # the pool is scored in bfloat16 where the CPU is fast at it: larger pools
    averaged: float = Field(0.0, ge=0, le=1)  # share of the budget, its last, to average over
    validate_every: int = Field(5, ge=1)  # epochs
    patience: int = Field(5, ge=0)  # validations without a better MRR before stopping; 0: never
    keep: Literal["best", "last"] = "best"  # weights by validation MRR; authors' code: the last
    seed: int = 0
    threads: int = Field(0, ge=0)  # 0: as many as there are cores
    memory: int | None = Field(None, ge=1)  # MB for scores; default: a quarter of what is free


class Config(Section):
    """All settings of a run."""

    data: DataConfig = DataConfig()
    scoring: ScoringConfig = ScoringConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    sampler: SamplerConfig = SamplerConfig()
    generator: GeneratorConfig = GeneratorConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingConfig = TrainingConfig()

    def with_settings(self, settings: Iterable[str]) -> "Config":
        """Return a copy with settings such as "training.epochs=20" applied."""
        values = self.model_dump()
        for setting in sorted(settings, key=lambda s: not s.partition("=")[0].endswith(".name")):
            path, equals, text = setting.partition("=")
            *sections, key = path.strip().split(".")
            if not equals or not sections:
                raise ConfigError(f"--set {setting!r}: write it as section.key=value")
            place = values
            for section in sections:
                place = place.setdefault(section, {})
                if not isinstance(place, dict):
                    raise ConfigError(f"--set {setting!r}: {section!r} is no section")
            if key == "name" and "options" in place:
                place["options"] = {}  # the others belong to the entry that was named before
            place[key] = _parse(text.strip())
        return Config.of(values, source="--set")

    def to_toml(self) -> str:
        """Write all settings; `read` of it gives an equal config."""
        lines: list[str] = []
        for name, section in self.model_dump(exclude_none=True).items():
            lines += [f"[{name}]"]
            tables = {k: v for k, v in section.items() if isinstance(v, dict)}
            lines += [f"{k} = {toml(v)}" for k, v in section.items() if k not in tables]
            for key, table in tables.items():
                if table:
                    lines += [f"[{name}.{key}]"]
                    lines += [f"{toml(k)} = {toml(v)}" for k, v in table.items()]
            lines += [""]
        return "\n".join(lines)


def read(path: Path) -> Config:
    """Read a config from a TOML file."""
    return Config.of(read_toml(path), source=str(path))


def preset(name: str) -> Config:
    """Return settings by name: best (the defaults), paper or fast."""
    if name not in PRESETS:
        raise ConfigError(f"no preset {name!r}{nearest(name, PRESETS)}")
    return Config() if name == "best" else read(Path(__file__).parent / "presets" / f"{name}.toml")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file as nested values."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the config {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def accepted(
    factory: Callable[..., object], options: Options, *, given: Sequence[str], what: str
) -> dict[str, Any]:
    """Check the options of a registry entry against its signature; `given` is not the user's."""
    parameters = inspect.signature(factory, eval_str=True).parameters
    allowed = {name: p.annotation for name, p in parameters.items() if name not in given}
    checked: dict[str, Any] = {}
    for name, value in options.items():
        if name not in allowed:
            raise ConfigError(f"{what} has no option {name!r}{nearest(name, allowed)}")
        kind = Any if allowed[name] is inspect.Parameter.empty else allowed[name]
        try:
            checked[name] = TypeAdapter(kind).validate_python(value, strict=True)
        except ValidationError as error:
            reason = error.errors()[0]["msg"].lower()
            raise ConfigError(f"{what}: option {name} = {value!r}: {reason}") from None
    return checked


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name is meant, or list them all."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f": did you mean {near[0]!r}?"
    return f" (known: {', '.join(known)})" if known else " (it has none)"


def toml(value: object) -> str:
    """Write a value; what JSON says of words, numbers, truth and lists, TOML says alike."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml(k)} = {toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _parse(text: str) -> Any:
    """Read a value as TOML would, a bare word as itself and "none" as no value."""
    if text.lower() == "none":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _explain(model: type[BaseModel], error: ValidationError) -> str:
    first = error.errors()[0]
    path = ".".join(str(part) for part in first["loc"])
    if first["type"] != "extra_forbidden":
        return f"{path} = {first['input']!r}: {first['msg'].lower()}"
    known: Iterable[str] = model.model_fields
    for part in first["loc"][:-1]:  # sections, of which some may be left out or repeated
        field = model.model_fields.get(str(part))
        kinds = [] if field is None else [field.annotation, *get_args(field.annotation)]
        inner = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
        model, known = (inner[0], inner[0].model_fields) if inner else (model, known)
    return f"unknown key {path!r}{nearest(str(first['loc'][-1]), known)}"
