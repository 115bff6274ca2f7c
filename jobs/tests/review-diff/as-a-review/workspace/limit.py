def clamp(value, least, most):
    return max(least, min(value, most))
