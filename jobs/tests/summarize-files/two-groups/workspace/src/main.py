from load import load


def main(path):
    print(len(load(path)))
