"""``python -m mlacademy``: the command ``mlacademy``, where its script is not on the path."""

import sys

from mlacademy.cli import main

if __name__ == "__main__":
    sys.exit(main())
