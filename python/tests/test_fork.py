"""A process that forks after it computed on several threads, as data loaders do."""

import os
import subprocess
import sys

import pytest

CODE = """
import os, sys
import numpy as np
import onepass

onepass.set_num_threads(2)
x = np.tile(np.arange(17, dtype=np.float32), (64, 4096))
expected = onepass.softmax(x)
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(onepass.softmax(x), expected) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is not part of this system")
def test_a_child_computes_what_its_parent_does():
    subprocess.run([sys.executable, "-W", "ignore", "-c", CODE], check=True, timeout=60)
