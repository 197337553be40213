import contextlib
import threading

import pytest

from workbench import _blas


@pytest.fixture
def number(monkeypatch):
    """[threads of NumPy], which blocks set and set back."""
    threads = [2]

    @contextlib.contextmanager
    def limits(wanted, kind):
        assert kind == "blas"
        before, threads[0] = threads[0], wanted
        try:
            yield
        finally:
            threads[0] = before

    monkeypatch.setattr(_blas, "threadpool_limits", limits)
    return threads


def test_a_block_beside_one_of_another_thread_neither_waits_nor_sets_the_number_back(number):
    inside = []

    def beside():
        with _blas.one_thread():
            inside.append(number[0])

    with _blas.one_thread():
        thread = threading.Thread(target=beside, daemon=True)
        thread.start()
        thread.join(timeout=60)
        assert inside == [1]
        assert number == [1]
    assert number == [2]


def test_the_number_is_set_back_after_an_error_and_can_be_set_again(number):
    def failing():
        with _blas.one_thread():
            assert number == [1]
            raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            failing()
        assert number == [2]
