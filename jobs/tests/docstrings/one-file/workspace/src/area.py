"""Areas of plane figures."""


def circle(radius):
    return 3.141592653589793 * radius**2


def square(side):
    """The area of a square with this side."""
    return side**2
