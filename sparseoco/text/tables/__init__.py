"""Parquet and Arrow: files of typed columns, read by row group and column."""
