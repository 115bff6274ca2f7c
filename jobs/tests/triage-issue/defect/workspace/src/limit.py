def limit(text):
    value = int(text)
    if value < 0:
        raise ValueError(f"--limit: {value} isn't a number from 1 up")
    return value
