"""One reader a file: each has `read(path, key, memory_limit)`."""
