"""Calls from many threads, on many threads, and beside other Python code."""

import threading

import numpy as np
import pytest
import reference

import onepass


def test_from_many_threads(random, library):
    inputs = [random.normal(size=(50, 1000)).astype(np.float32) for _ in range(8)]
    arrays = {id(x): library.array(x) for x in inputs}
    wrong = []

    def work(x):
        for _ in range(20):
            try:  # threads that were never on a GPU before
                y = onepass.softmax(arrays[id(x)])
            except Exception as error:
                wrong.append(error)
                continue
            if not np.allclose(library.numpy(y), reference.softmax(x), rtol=1e-5, atol=1e-7):
                wrong.append(x)

    threads = [threading.Thread(target=work, args=(x,)) for x in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_others_run_meanwhile():
    """The interpreter's lock is released: a second thread makes progress while a long
    call computes."""
    x = np.zeros((4096, 4096), np.float32)
    out = np.empty_like(x)
    stop = threading.Event()
    steps = []

    def count():
        while not stop.is_set():
            steps.append(stop.wait(0.0005))

    counter = threading.Thread(target=count)
    onepass.set_num_threads(1)  # many would be done before the other thread wakes up
    try:
        counter.start()
        onepass.softmax(x, out=out)
        before = len(steps)
        onepass.softmax(x, out=out)
        after = len(steps)
    finally:
        stop.set()
        counter.join()
        onepass.set_num_threads(0)
    assert after > before + 2


def test_threads_can_be_chosen(random):
    x = random.normal(size=(300, 1000)).astype(np.float32)
    onepass.set_num_threads(1)
    try:
        assert "threads=1" in onepass.explain(onepass.softmax, x).plan
        one = onepass.softmax(x)
    finally:
        onepass.set_num_threads(0)
    np.testing.assert_allclose(onepass.softmax(x), one, rtol=1e-6)
    with pytest.raises(ValueError, match="threads: -1 is negative"):
        onepass.set_num_threads(-1)
