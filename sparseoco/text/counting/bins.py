"""The bins of numbers: by quantiles of all documents of the first ingest."""

from typing import NamedTuple

import numpy as np

from sparseoco.storage.locations import location
from sparseoco.text.array_files import load_arrays, save_arrays
from sparseoco.text.counting.fields import VALUES, count_bins
from sparseoco.text.counting.partial_counts import PartialCounts, describe_counts
from sparseoco.text.fields import Fields, NumberField
from sparseoco.text.job import TextJob
from sparseoco.text.options import TextOptions


class BinnedCounts(NamedTuple):
    """A job whose options have the cuts of all bins, and the partial counts with the bins."""

    job: TextJob
    counts: list[PartialCounts]


def choose_bins(job: TextJob, counts: list[PartialCounts]) -> BinnedCounts:
    """Choose the bins that the options leave open, and count them. An exact quantile needs one number per document."""
    paths = [split.path for split in counts]
    chosen: Fields = {}
    for name, field in job.options.fields.items():
        if isinstance(field, NumberField) and field.transform == "bins" and field.cuts is None:
            cuts = job.tasks(quantile_cuts, paths, name, field.bins).result()
            chosen[name] = field.model_copy(update={"cuts": cuts})
    if not chosen:
        return BinnedCounts(job, counts)
    options = job.options.model_copy(update={"fields": job.options.fields | chosen})
    binned = [job.tasks(bin_counts, split, options) for split in counts]
    return BinnedCounts(job._replace(options=options), [result.result() for result in binned])


def quantile_cuts(paths: list[str], name: str, bins: int) -> tuple[float, ...]:
    """The distinct quantiles between the least and the greatest value, as scikit-learn's KBinsDiscretizer."""
    values = np.concatenate([load_arrays(location(path))[0][f"{VALUES}{name}"] for path in paths])
    values = values[~np.isnan(values)]
    levels = np.linspace(0, 100, bins + 1)
    edges = np.unique(np.percentile(values, levels, method="averaged_inverted_cdf"))
    return tuple(edges[1:-1].tolist())


def bin_counts(counts: PartialCounts, options: TextOptions) -> PartialCounts:
    """Write a copy of partial counts with the bins of the options; an existing file is reused."""
    source = location(counts.path)
    target = source.with_name(f"{source.stem}-{options.counting_digest[:16]}.counts")
    if not target.exists():
        arrays, facts = load_arrays(source)
        binned = count_bins(arrays, options)
        facts["empty"] = int(np.count_nonzero(np.diff(binned["indptr"]) == 0))
        facts["levels"] = [binned[name].size for name in sorted(binned) if name.startswith("nodes_")]
        save_arrays(target, binned, facts)
    return describe_counts(target, counts.split)
