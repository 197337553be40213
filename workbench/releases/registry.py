"""The entry of a release in the Differential Privacy Deployments Registry, as YAML.

The fields are those of the registry's schema (opendp/deployments-registry-data, commit 3e9c812).
What the program knows is filled in from the guarantee; what only the owner knows, from their
answers (``description``). Nothing is invented, and no field of the schema's third tier stays empty.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from workbench import _validate
from workbench._numbers import count, upper
from workbench._versions import versions
from workbench.data.look import Look
from workbench.fitting.evaluating import Evaluation
from workbench.ledger.composition import total
from workbench.privacy.chosen import Chosen
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.steps import LAWS
from workbench.releases import description
from workbench.releases.claim import CENTRAL, NO_LEDGER, NOISE, NOT_QUERIED, neighbours
from workbench.releases.declaration import columns_of
from workbench.releases.tables import KINDS, Tables
from workbench.results import FitResult
from workbench.sweeps.result import SweepResult

__all__ = ["deployment", "text_of"]

_count = functools.partial(count, space=" ")
_POST = (
    "Everything is computed from what was released with noise and from public data: {made}. No "
    "step after the noise reads the records."
)
_NOISE = (
    f"{NOISE} How long the program runs is not covered, and neither is who can read its memory."
)
_UNPROTECTED = (
    "The number of records (N = {records}), the sampling rate (q = {rate}), the number of steps, "
    "the names of columns, and what is declared of their values are treated as public."
)


@dataclass(frozen=True)
class Product:
    """What is published, as the registry asks about it.

    :param kind: one of the schema's types of data products.
    :param summary: what it is, in a sentence.
    :param made: what was made of the release.
    :param fits: the guarantees of all that is published.
    :param epsilon: of all together. :param delta: likewise.
    :param columns: (column, what is declared about its values).
    :param tuning: how settings were chosen.
    :param programs: versions of packages by name.
    """

    kind: str
    summary: str
    made: str
    fits: tuple[Guarantee, ...]
    epsilon: float
    delta: float
    columns: Sequence[tuple[str, str]]
    tuning: str
    programs: Mapping[str, str]


def _of_result(result: FitResult) -> Product:
    fit = result.guarantee
    return Product(
        "Machine learning model",
        f"Posterior of {', '.join(result.released)} of the model {result.model}, fitted to "
        f"{_count(fit.num_records)} records ({result.data['name']}) with differentially private "
        "variational inference.",
        "posterior draws, summaries, predictions and synthetic records",
        (fit,),
        fit.epsilon,
        fit.delta,
        columns_of(result),
        "Models and settings were compared within the guarantee, which covers the choice."
        if isinstance(fit, Chosen)
        else "Settings of this fit were given, or follow from public facts by fixed rules. The "
        "guarantee covers no comparison with other fits.",
        result.versions,
    )


def _of_tables(tables: Tables) -> Product:
    return Product(
        "Summary statistics",
        tables.summary,
        KINDS[tables.kind].made,
        (tables.guarantee,),
        tables.guarantee.epsilon,
        tables.guarantee.delta,
        columns_of(tables),
        "There is nothing to tune.",
        tables.versions,
    )


def _of_look(look: Look) -> Product:
    if look.guarantee is None:
        raise _validate.ArgumentError(
            "result", "a look", "is part of a fit: its guarantee is that of the fit."
        )
    return _of_tables(Tables.of_look(look))


def _of_sweep(sweep: SweepResult) -> Product:
    fits = sweep.guarantees
    if not fits:
        raise _validate.ArgumentError("result", repr(sweep), "has no finished private fit.")
    spent = total(fits) if sweep.total is None else sweep.total
    names = list(dict.fromkeys(sweep.table["model"]))
    return Product(
        "Summary statistics",
        f"Metrics of {len(fits)} private fits over a grid of settings ({', '.join(names)}).",
        "metrics, tables and figures of all fits",
        fits,
        spent.epsilon,
        spent.delta,
        [(name, "the data set of these fits") for name in dict.fromkeys(sweep.table["data"])],
        f"All {len(fits)} fits are published, and their costs are added up.",
        versions(),
    )


_PRODUCTS: dict[type, Callable[[Any], Product]] = {
    FitResult: _of_result,
    Look: _of_look,
    Evaluation: lambda scores: _of_tables(Tables.of_evaluation(scores)),
    Tables: _of_tables,
    SweepResult: _of_sweep,
}


def deployment(
    result: FitResult | Look | Evaluation | Tables | SweepResult,
    describe: Mapping[str, Any] | str | Path,
    *,
    spent: str = "",
) -> dict[str, Any]:
    """The registry's entry for a fit, a choice, a look, an evaluation or a sweep.

    >>> answers = dict.fromkeys(wb.releases.questions(), "see our page") | {
    ...     "publication_date": "2026-01-31",
    ...     "data_product_sector": "",
    ... }
    >>> entry = wb.releases.deployment(
    ...     wb.fit("logistic", "breast_cancer", epsilon=1.0), answers
    ... )
    >>> entry["deployment"]["privacy_loss"]["privacy_parameters"]
    {'epsilon': 1.0, 'delta': 0.001}

    :param describe: answers to ``questions()``, or their file.
    :param spent: what all fits on the same records spend together, in words.
    :raises ArgumentError: naming ``result`` or ``describe``.
    """
    kind = next((kind for kind in _PRODUCTS if isinstance(result, kind)), None)
    if kind is None:
        raise _validate.ArgumentError(
            "result",
            type(result).__name__,
            "must be a result of a fit, a choice, a look or a sweep.",
        )
    product = _PRODUCTS[kind](result)
    if not math.isfinite(product.epsilon):
        raise _validate.ArgumentError("result", repr(result), "promises no finite epsilon.")
    if not all(fit.secure_randomness for fit in product.fits):
        raise _validate.ArgumentError("result", repr(result), "has noise that follows from a seed.")
    said = description.answers_of(describe)
    year = said["publication_date"][:4]
    title = f"{said['name']} {_names(said['data_curators'])[0]} {year}"
    return {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "release",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": _basic(product, said),
            "dp_variant": _variant(product),
            "privacy_loss": _loss(product),
            "deployment_model": _model(product, said),
            "accounting": _accounting(product, spent),
            "implementation": _implementation(product, said),
            "administrative": _administrative(product, said),
        },
    }


def text_of(entry: Mapping[str, Any]) -> str:
    """An entry as the file that is sent to the registry."""
    return yaml.safe_dump(dict(entry), sort_keys=False, allow_unicode=True, width=100)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(";") if name.strip()]


def _repeated(product: Product, words: Callable[[Guarantee], str]) -> str:
    """What is so for all fits, each sentence once."""
    return " ".join(dict.fromkeys(map(words, product.fits)))


def _basic(product: Product, said: Mapping[str, str]) -> dict[str, Any]:
    sector = said["data_product_sector"]
    return {
        "name": said["name"],
        "data_curators": _names(said["data_curators"]),
        "description": product.summary,
        "intended_use": said["intended_use"],
        "data_product_type": product.kind,
        "data_product_region": said["data_product_region"],
        "publication_date": said["publication_date"],
        **({"data_product_sector": sector} if sector else {}),
    }


def _variant(product: Product) -> dict[str, Any]:
    (first, *_), columns = product.fits, product.columns
    declared = "; ".join(f"{name} ({words})" for name, words in columns)
    hidden = LAWS[first.sampler].hides_size
    number = "at most" if hidden else "exactly"
    return {
        "variant_name": "Approximate DP",
        "data_domain": f"All sets of {number} {_count(first.num_records)} records with: "
        f"{declared}. Numbers outside of their declared range are set to its nearest end.",
        "unprotected_quantities": _repeated(
            product,
            lambda fit: _UNPROTECTED.format(
                records=_count(fit.num_records), rate=f"{fit.sampling_rate:g}"
            ),
        ),
    }


def _loss(product: Product) -> dict[str, Any]:
    def parameters(fit: Guarantee) -> str:
        costs = f"{upper(fit.overflow_delta, 2)} for minibatches and {upper(fit.noise_delta, 2)}"
        return f"{fit.headline()} Of delta, {costs} for the rounding of noise are part."

    return {
        "privacy_unit": _repeated(product, lambda fit: fit.unit),
        "privacy_unit_details": _repeated(product, neighbours),
        "privacy_parameters": {"epsilon": product.epsilon, "delta": product.delta},
        "privacy_parameters_details": _repeated(product, parameters),
    }


def _model(product: Product, said: Mapping[str, str]) -> dict[str, Any]:
    return {
        "model_name": "Central",
        "model_name_details": CENTRAL,
        "actors": said["actors"],
        "release_type": "One release",
        "release_type_details": said["future_uses"],
        "data_source_type": "Static",
        "data_source_type_details": "The records were read as one table that did not change.",
        "access_type": "Non-interactive",
        "access_type_details": NOT_QUERIED,
    }


def _accounting(product: Product, spent: str) -> dict[str, Any]:
    several = (
        ""
        if len(product.fits) == 1
        else f" All {len(product.fits)} fits together: epsilon {product.epsilon}, delta "
        f"{upper(product.delta)}."
    )
    ledger = f" By the owner's ledger: {spent}." if spent else f" {NO_LEDGER}"
    return {
        "post_processing": _POST.format(made=product.made),
        "composition": _repeated(product, lambda fit: fit.composition()) + several + ledger,
    }


def _implementation(product: Product, said: Mapping[str, str]) -> dict[str, Any]:
    programs = ", ".join(f"{name} {number}" for name, number in product.programs.items())
    return {
        "preprocessing_and_hyperparameter_tuning": f"{product.tuning} {said['preparation']}",
        "mechanisms": "The Gaussian mechanism, whose guarantee the program that ran has computed "
        f"(DP-VI workbench: {programs}). {_repeated(product, lambda fit: ' '.join(fit.origin()))} "
        f"{_NOISE} {said['protection']}",
        "justification": said["justification"],
    }


def _administrative(product: Product, said: Mapping[str, str]) -> dict[str, Any]:
    return {
        **({"sources": said["sources"]} if said["sources"] else {}),
        "notes": _repeated(product, lambda fit: " ".join(fit.caveats)),
        "registry_authors": _names(said["registry_authors"]),
    }
