"""Areas of plane figures."""


def circle(radius):
    """The area of a circle with this radius."""
    return 3.141592653589793 * radius**2


def square(side):
    """The area of a square with this side."""
    return side**2
