from numbers import read


def test_underscores_are_for_the_eye():
    assert read("1_000") == 1000
