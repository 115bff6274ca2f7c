def clamp(value, most, least=0):
    if least > most:
        return None
    return max(least, min(value, most))
