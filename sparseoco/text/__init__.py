"""Raw text to term counts. In the order of the data:

`sources` (inputs to files) → `splits` (ranges of whole lines, over streams of bytes, `formats`) → `parsers` (documents)
→ `counting` (tokens, n-grams, partial counts of a split) → `vocabulary`, `features` (merge, select, number the terms) →
`encoding` (rows of features, labels, shards). `ingest` runs them in tasks (`passes`); `readers` is for prediction.
"""
