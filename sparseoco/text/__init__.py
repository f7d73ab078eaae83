"""Raw text to counts: readers, tokenizer, vocabulary."""
