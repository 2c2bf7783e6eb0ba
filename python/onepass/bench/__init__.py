"""onepass beside its peers, in one process, on cold caches: `python -m onepass.bench --help`."""
