"""Files and folders, local or in an object store, written atomically.

locations    paths of either kind
remote       files in object stores, through obstore
commit       atomic writes, and reading; the only module that writes files
inputs       files that inputs name: listed, pinned to a version, digested, read
ranges       ranges of staging files, local or remote
temporary    temporary files and folders, and folders that processes share
locks        one writer per folder: a file lock, or a lease
checkpoints  arrays with a description
tables       tables in Parquet, with a checksum
"""
