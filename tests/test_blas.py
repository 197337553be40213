import threading

from threadpoolctl import threadpool_info

from workbench._blas import one_thread


def threads():
    return sorted({each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"})


def test_inside_there_is_one_and_afterwards_as_many_as_before():
    before, seen = threads(), []

    def inside():
        with one_thread():
            seen.append(threads())

    several = [threading.Thread(target=inside) for _ in range(4)]
    for each in several:
        each.start()
    for each in several:
        each.join()
    assert seen == [[1]] * 4
    assert threads() == before
