"""Scoring of corpora of any size: margins, probabilities and predictions of saved models, one Parquet part per split.

FOLDER/manifest.json      models, options, totals, and the files that list parts, sources and kept files
FOLDER/parts/KEY.parquet  the scores of the documents of a split (`sparseoco.scoring.parts`)
FOLDER/kept/KEY.…         the kept documents of a split, in their input format or as rows of the part
FOLDER/kept.json          which documents are kept and the list of their files: FOLDER/kept has others too during a run
FOLDER/distribution.parquet  documents by model, source, class and range of the score (`sparseoco.scoring.distribution`)
"""
