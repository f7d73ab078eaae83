"""The vocabulary of a store as a piece of an exchange."""

import numpy as np

from sparseoco.storage.locations import location
from sparseoco.store.data_files import read_table, unlike_manifest
from sparseoco.store.manifest import FileEntry
from sparseoco.store.validation import check_features
from sparseoco.text.array_files import ArrayReader, Arrays, save_arrays, store_strings
from sparseoco.text.options import TextOptions
from sparseoco.text.vocabulary.naming import term_fields
from sparseoco.text.vocabulary.trie import Vocabulary


def stage_known_terms(
    out: str, staging: str, entry: FileEntry, n_features: int, options: TextOptions
) -> tuple[str, int, list[int]]:
    """Stage the terms of a vocabulary file with their features, of which the store has `n_features`.

    Returns
    -------
    name : str
        The name of the staged file: the arrays of partial counts that n-grams are merged from, and known_<n>, the
        feature of each n-gram plus one, or 0.
    size : int
        The number of terms.
    sizes : list of int
        The number of terms of each text field, or of all without fields.
    """
    name = f"{entry.sha256[:32]}.known"
    target = location(staging) / name
    if not target.is_file():
        table = read_table(location(out), entry, columns=["feature", "term"])
        features = table["feature"].to_numpy()
        check_features(location(out) / entry.file, features, n_features)
        try:
            vocabulary = Vocabulary.from_terms(table["term"], options.naming)
        except ValueError as error:
            raise unlike_manifest(location(out) / entry.file, str(error)) from error
        arrays: Arrays = {}
        store_strings(arrays, "token", vocabulary.tokens)
        arrays |= {f"keys_{n}": keys for n, keys in enumerate(vocabulary.keys, 2)}
        for n, rows in enumerate(vocabulary.ids, 1):
            arrays[f"known_{n}"] = np.where(rows < 0, 0, features[rows] + 1)
        sizes = [features.size]
        if options.naming.namespaces is not None:
            fields = term_fields(table["term"], options.naming)
            sizes = np.bincount(fields[fields >= 0], minlength=max(1, len(options.naming.namespaces))).tolist()
        save_arrays(target, arrays, {"size": features.size, "sizes": sizes})
    with ArrayReader(target) as file:
        return name, file.facts["size"], file.facts["sizes"]
