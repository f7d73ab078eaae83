"""Where sources are cut into splits, in one pass over a file or by surveys of its parts: the same cuts either way."""
