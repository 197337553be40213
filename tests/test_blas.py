import contextlib
import threading
import time

from workbench import _blas


def test_the_number_of_threads_is_set_and_set_back_by_one_at_a_time(monkeypatch):
    number, seen = [2], []

    @contextlib.contextmanager
    def limits(wanted, kind):
        before, number[0] = number[0], wanted
        seen.append((before, kind))
        time.sleep(0.01)
        yield
        number[0] = before

    def inside():
        with _blas.one_thread():
            assert number == [1]

    monkeypatch.setattr(_blas, "threadpool_limits", limits)
    several = [threading.Thread(target=inside) for _ in range(4)]
    for each in several:
        each.start()
    for each in several:
        each.join()
    assert seen == [(2, "blas")] * 4
    assert number == [2]
