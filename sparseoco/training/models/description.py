"""model.json: what a saved model says of itself."""

from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import AfterValidator, Field, FiniteFloat
from typing_extensions import TypedDict

from sparseoco.storage.locations import Location
from sparseoco.storage.validated import Count, Moderate, Sha256, read_validated, with_other_keys
from sparseoco.store.weighting import Weighting

DESCRIPTION = "model.json"


def _checked_weighting(value: dict[str, Any]) -> dict[str, Any]:
    Weighting.model_validate(value)
    return value


@with_other_keys
class FeaturesDescription(TypedDict):
    """The features a model was trained on."""

    kind: Literal["vocabulary", "hashed"]
    count: Count
    hash_bits: Annotated[int, Field(ge=1, le=62)] | None
    hash_seed: int | None


@with_other_keys
class Provenance(TypedDict):
    """What a model was trained on: the digest of the store, its documents, the number and digests of its sources."""

    store: str
    rows: Count
    sources: Count
    source_digests: NotRequired[list[Annotated[str, Field(pattern=r"^[0-9]{1,18}-[0-9a-f]{16}$")]]]


@with_other_keys
class WarmStart(TypedDict):
    """The model that training started from: whether its state was used, its weights and those that were found."""

    state: bool
    weights: Count
    found: Count


@with_other_keys
class SubsetDescription(TypedDict):
    """The features with a nonzero weight in another model."""

    features: Count


@with_other_keys
class TrainedDescription(TypedDict):
    """The configuration that was trained on the features that a mixture kept."""

    algorithm: str
    parameters: dict[str, Any]


@with_other_keys
class MixtureDescription(TypedDict):
    """How the columns of a mixture were made."""

    options: dict[str, Any]
    kept: NotRequired[Count | None]
    trained: NotRequired[TrainedDescription]


@with_other_keys
class ModelDescription(TypedDict):
    """The content of model.json, as far as anything reads it."""

    algorithm: str
    parameters: dict[str, Any]
    classes: list[str]
    labels: Literal["classes", "multi", "numbers"]
    positive_class: NotRequired[str | None]
    intercept: list[FiniteFloat] | None
    features: FeaturesDescription
    features_sha256: Sha256
    nonzeros: Count
    text: dict[str, Any]
    provenance: Provenance
    weights_sha256: Sha256
    weighting: NotRequired[Annotated[dict[str, Any], AfterValidator(_checked_weighting)]]
    loss: NotRequired[str]
    penalty: NotRequired[str]
    dtype: NotRequired[Literal["float32", "float64"]]
    epochs: NotRequired[Count]
    rounds: NotRequired[Count]
    increment: NotRequired[Count]
    positive: NotRequired[Literal[0, 1]]
    never_predicted: NotRequired[list[Count]]
    fields: NotRequired[list[dict[str, Any]]]
    unseen_idf: NotRequired[Moderate]
    learner_sha256: NotRequired[Sha256]
    vocabulary_sha256: NotRequired[Sha256]
    warm_start: NotRequired[WarmStart]
    features_from: NotRequired[SubsetDescription]
    mixture: NotRequired[MixtureDescription]


def read_description(model: Location) -> dict[str, Any]:
    """The `ModelDescription` of the model in a folder. Raises as `read_validated`."""
    return cast(dict[str, Any], read_validated(model / DESCRIPTION, ModelDescription))
