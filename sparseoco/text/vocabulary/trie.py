"""The vocabulary: a trie of n-grams over sorted tokens, and the feature each of them is."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.storage.locations import Location
from sparseoco.text.array_files import Arrays, load_arrays, save_arrays, string_array, string_buffers
from sparseoco.text.kernels.keys import locate
from sparseoco.text.kernels.terms import term_offsets, write_terms

HALF = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)


class Vocabulary(NamedTuple):
    """Levels of n-grams in alphabetical order.

    tokens   the tokens, strictly increasing by their bytes
    keys     for each level n ≥ 2, strictly increasing: (place of the prefix in level n − 1) · 2^32 + place of last
    ids      for each level n ≥ 1: the feature of each gram, or −1 where it is only the prefix of others
    size     number of features
    """

    tokens: pa.Array
    keys: tuple[NDArray[np.uint64], ...]
    ids: tuple[NDArray[Any], ...]
    size: int

    @classmethod
    def from_terms(cls, terms: pa.Array | list[str]) -> "Vocabulary":
        """The vocabulary in which term i (tokens joined by a space) is feature i."""
        strings = pa.array(terms, pa.large_string()) if isinstance(terms, list) else terms.cast(pa.large_string())
        lists = pc.split_pattern(strings, " ")
        if isinstance(lists, pa.ChunkedArray):
            lists = lists.combine_chunks()
        sizes = np.diff(lists.offsets.to_numpy()).astype(np.int64)
        flat = lists.flatten()
        encoded = flat.dictionary_encode()
        order = pc.sort_indices(encoded.dictionary.cast(pa.large_binary())).to_numpy()
        rank = np.empty(order.size, np.uint64)
        rank[order] = np.arange(order.size, dtype=np.uint64)
        tokens = rank[encoded.indices.to_numpy()] if len(flat) else np.empty(0, np.uint64)
        starts = np.concatenate([[0], np.cumsum(sizes)])[:-1]
        ids = [np.full(order.size, -1, np.int64)]
        single = np.flatnonzero(sizes == 1)
        ids[0][tokens[starts[single]]] = single
        keys: list[NDArray[np.uint64]] = []
        place = tokens[starts] if len(sizes) else np.empty(0, np.uint64)
        for n in range(2, int(sizes.max(initial=1)) + 1):
            longer = np.flatnonzero(sizes >= n)
            level, place_n = np.unique((place[longer] << HALF) | tokens[starts[longer] + n - 1], return_inverse=True)
            place[longer] = place_n.astype(np.uint64)
            ends = longer[sizes[longer] == n]
            level_ids = np.full(level.size, -1, np.int64)
            level_ids[place[ends]] = ends
            keys.append(level)
            ids.append(level_ids)
        return cls(encoded.dictionary.take(pa.array(order)), tuple(keys), tuple(ids), len(sizes))

    def features(self, piece: Arrays) -> NDArray[np.int64]:
        """The feature of each gram of a piece, by its number in the piece's CSR; −1 for what is none."""
        mine = string_array(piece["token_bytes"], piece["token_offsets"]).cast(self.tokens.type)
        found = pc.index_in(mine, value_set=self.tokens)
        token_map = pc.fill_null(found, -1).to_numpy().astype(np.int64)
        n_grams = sum(array.size for name, array in piece.items() if name.startswith("nodes_"))
        features = np.full(n_grams, -1, np.int64)
        places = token_map
        for n in range(1, len(self.ids) + 1):
            if n > 1:
                if f"keys_{n}" not in piece:
                    break
                local = piece[f"keys_{n}"]
                prefix, last = places[local >> HALF], token_map[local & LOW]
                known = np.flatnonzero((prefix >= 0) & (last >= 0))
                wanted = (prefix[known].astype(np.uint64) << HALF) | last[known].astype(np.uint64)
                places = np.full(local.size, -1, np.int64)
                places[known] = locate(wanted, self.keys[n - 2])
            if f"totals_{n}" in piece:
                inside = places >= 0
                features[piece[f"nodes_{n}"][inside]] = self.ids[n - 1][places[inside]]
        return features

    def features_of(self, other: "Vocabulary", counted_from: int) -> NDArray[np.int64]:
        """The feature of each gram of another trie, its levels from `counted_from` on laid end to end; −1 for none."""
        grams: Arrays = {}
        grams["token_bytes"], grams["token_offsets"] = string_buffers(other.tokens)
        grams |= {f"keys_{n}": keys for n, keys in enumerate(other.keys, 2)}
        sizes = [len(other.tokens), *(keys.size for keys in other.keys)]
        first = 0
        for n, size in enumerate(sizes, 1):
            if n >= counted_from:
                grams[f"nodes_{n}"] = grams[f"totals_{n}"] = np.arange(first, first + size)
                first += size
        return self.features(grams)

    def save(self, path: Location) -> None:
        """Stage it."""
        arrays: Arrays = {}
        arrays["token_bytes"], arrays["token_offsets"] = string_buffers(self.tokens)
        arrays |= {f"keys_{n}": keys for n, keys in enumerate(self.keys, 2)}
        arrays |= {f"ids_{n}": ids for n, ids in enumerate(self.ids, 1)}
        save_arrays(path, arrays, {"size": self.size, "levels": len(self.ids)})

    @classmethod
    def load(cls, path: Location) -> "Vocabulary":
        """What `save` staged, mapped."""
        arrays, facts = load_arrays(path)
        levels = facts["levels"]
        return cls(
            string_array(arrays["token_bytes"], arrays["token_offsets"]).cast(pa.large_string()),
            tuple(arrays[f"keys_{n}"] for n in range(2, levels + 1)),
            tuple(arrays[f"ids_{n}"] for n in range(1, levels + 1)),
            facts["size"],
        )

    def terms(self, order: NDArray[np.int64]) -> pa.Array:
        """Names of grams given by their number when all levels are laid end to end."""
        token_bytes, token_offsets = string_buffers(self.tokens)
        parents, lasts = self.trie()
        padded = np.concatenate([token_bytes, np.zeros(8, np.uint8)])
        offsets = term_offsets(order, parents, lasts, token_offsets)
        depth = len(self.keys) + 1
        return string_array(write_terms(order, parents, lasts, padded, token_offsets, offsets, depth), offsets)

    def trie(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """(parent, last token) of all grams, levels laid end to end; a single token has the parent −1."""
        parents = [np.full(len(self.tokens), -1, np.int64)]
        lasts = [np.arange(len(self.tokens), dtype=np.int32)]
        below = 0
        for keys in self.keys:
            parents.append((keys >> HALF).astype(np.int64) + below)
            lasts.append((keys & LOW).astype(np.int32))
            below += parents[-2].size
        return np.concatenate(parents), np.concatenate(lasts)
