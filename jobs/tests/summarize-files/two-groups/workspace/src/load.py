def load(path):
    """The lines of a file."""
    return open(path).read().splitlines()
