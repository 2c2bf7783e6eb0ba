"""The command `onepass`: runs the program in the wheel in place of this interpreter."""

import os
import sys
from pathlib import Path


def main() -> None:
    program = str(Path(__file__).parent / "bin" / "onepass")
    if not os.path.exists(program):
        sys.exit(
            "onepass: this package was built without the program: "
            "take a wheel of `make wheel`, or pip install . -C cmake.define.ONEPASS_BUILD_CLI=ON"
        )
    os.execv(program, [program, *sys.argv[1:]])
