def read(text):
    """The number that a text says; ValueError where it says none."""
    return int(text.replace("_", ""))
