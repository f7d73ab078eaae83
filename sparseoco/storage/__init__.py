"""Files and folders, local or in an object store, written atomically.

locations    paths of either kind, and the requests to object stores, through obstore
commit       atomic writes, and reading; one writer per folder; the only module that writes files
inputs       files that inputs name: listed, pinned to a version, digested, read
temporary    temporary files and folders, and folders that processes share
tables       tables in Parquet and arrays in npz and npy, with checksums
"""
