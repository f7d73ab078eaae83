"""Files and folders, local or in an object store, written atomically.

locations    paths of either kind
remote       files in object stores, through obstore
commit       atomic writes, and reading; the only module that writes files
locks        one writer per folder: a file lock, or a lease (leases)
checkpoints  arrays with a description
metrics      the tables of a search
"""
