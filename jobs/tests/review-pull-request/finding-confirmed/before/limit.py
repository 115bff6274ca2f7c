def clamp(value, most):
    return min(value, most)
