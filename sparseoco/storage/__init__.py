"""Where files are, on a disk or in a bucket, and how they come to be there whole or not at all.

locations   a folder or file at a path or an address, and what is asked of either
objects     the objects of a bucket: put on condition, listed, removed; buckets opens one
leases      one writer at a time at an address
commit      the only place that writes: a file is there whole or not at all, a folder is one process's at a time
parquet     tables from the bytes of Parquet files
"""
