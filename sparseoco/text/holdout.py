"""A test set drawn from the documents themselves, by a digest of their ids.

Whether a document is withheld depends on its id alone, so the same documents are left out of a store and read for its
evaluation, whatever the files, splits and workers.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco.text.documents import CountedDocuments, Documents
from sparseoco.text.hashing import hash_strings
from sparseoco.text.tables.columns import take_rows

_BITS = 48
_SEED = 0x686F6C64  # its own, so that the draw is independent of hashed features


def read_part(documents: Documents | CountedDocuments, share: float, *, withheld: bool) -> Documents | CountedDocuments:
    """The documents that are withheld, or all others.

    Parameters
    ----------
    share : float
        Expected share of withheld documents, 0 ≤ share < 1.
    withheld : bool
        Whether to return the withheld documents.
    """
    if not share and not withheld:
        return documents
    drawn = hash_strings(documents.ids, _SEED, _BITS) < share * 2.0**_BITS
    return _take(documents, np.flatnonzero(drawn == withheld))


def _take(documents: Documents | CountedDocuments, rows: NDArray[np.int64]) -> Documents | CountedDocuments:
    labels: Any = documents.labels
    if labels is not None:
        labels = labels[rows] if isinstance(labels, np.ndarray) else labels.take(rows)
    own: dict[str, Any]
    if isinstance(documents, Documents):
        own = {"data": documents.data, "starts": documents.starts[rows], "stops": documents.stops[rows]}
        own["fields"] = {
            name: values[rows] if isinstance(values, np.ndarray) else values.take(pa.array(rows))
            for name, values in documents.fields.items()
        }
        own["digest"] = documents.digest
    else:
        shape = (len(documents), len(documents.names))
        part = csr_matrix((documents.counts, documents.features, documents.indptr), shape)[rows]
        own = {
            "indptr": part.indptr.astype(np.int64),
            "features": part.indices.astype(np.int64),
            "counts": part.data,
            "names": documents.names,
        }
    return type(documents)(
        **own,
        ids=documents.ids.take(rows),
        labels=labels,
        lines=documents.lines[rows],
        bad=documents.bad,
        columns={name: values[rows] for name, values in documents.columns.items()},
        multiline=np.intersect1d(documents.multiline, documents.lines[rows]),
        carried={name: take_rows(values, rows) for name, values in documents.carried.items()},
    )
