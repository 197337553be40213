"""Programs are found by what they do: none is taken for another."""

import gc
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from workbench.inference import program_cache

ONE, TWO = jnp.float32(1), jnp.float32(2)


@pytest.fixture(autouse=True)
def nothing_is_kept():
    program_cache.forget()
    yield
    program_cache.forget()


@pytest.fixture
def compiled(monkeypatch):
    """As many entries as programs were compiled."""
    found, compile = [], jax.stages.Lowered.compile

    def noting(lowered, *arguments, **options):
        found.append(1)
        return compile(lowered, *arguments, **options)

    monkeypatch.setattr("jax.stages.Lowered.compile", noting)
    return found


def ran(function, *arguments, **options):
    return program_cache.jit(function, **options)(*arguments)


def test_the_same_program_is_compiled_once(compiled):
    for number in range(3):
        assert ran(lambda a: a + 1, jnp.float32(number)) == number + 1
    assert len(compiled) == 1


def test_one_function_is_traced_once_for_each_kind_of_arguments():
    traced = []
    function = program_cache.jit(lambda a: (traced.append(1), a + 1)[1])
    for argument in (ONE, TWO, jnp.ones(3), jnp.zeros(3), np.ones(3, np.float32), ONE):
        function(argument)
    assert len(traced) == 2


WORDS = jnp.zeros(4, jnp.uint32)
ALIKE = {
    "constants": ((lambda a: a + 1, (ONE,)), (lambda a: a + 2, (ONE,))),
    "which argument is used": ((lambda a, b: a + 1, (ONE, TWO)), (lambda a, b: b + 1, (ONE, TWO))),
    "names of arguments": (
        (lambda a: a["x"] + 1, ({"x": ONE},)),
        (lambda a: a["y"] + 1, ({"y": ONE},)),
    ),
    "names of results": ((lambda a: {"x": a}, (ONE,)), (lambda a: {"y": a}, (ONE,))),
    "trees of results": ((lambda a: (a, a), (ONE,)), (lambda a: [a, a], (ONE,))),
    "an empty result": ((lambda a: (a, None), (ONE,)), (lambda a: (a,), (ONE,))),
    "a key or its words": (
        (lambda a: jax.random.wrap_key_data(a, impl="rbg"), (WORDS,)),
        (lambda a: a, (WORDS,)),
    ),
    "generators of keys": (
        (lambda a: jax.random.wrap_key_data(a, impl="rbg"), (WORDS,)),
        (lambda a: jax.random.wrap_key_data(a, impl="unsafe_rbg"), (WORDS,)),
    ),
    "weak types": ((lambda a: a, (1.0,)), (lambda a: a, (ONE,))),
    "shapes": ((lambda a: a, (jnp.ones(2),)), (lambda a: a, (jnp.ones(3),))),
    "types": ((lambda a: a, (jnp.ones(2),)), (lambda a: a, (jnp.ones(2, jnp.int32),))),
}


@pytest.mark.parametrize("name", ALIKE)
def test_programs_that_look_alike_are_told_apart(name):
    for function, arguments in ALIKE[name]:
        expected = jax.jit(function)(*arguments)
        found = ran(function, *arguments)
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        for mine, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert jax.typeof(mine) == jax.typeof(other)
            assert jnp.all(mine == other)


def test_static_arguments_and_options_of_the_compiler_decide(compiled):
    def repeated(value, count):
        return jnp.full(count, value)

    function = program_cache.jit(repeated, static=1)
    assert (function(ONE, 2).shape, function(ONE, 3).shape) == ((2,), (3,))
    ran(repeated, ONE, 2, static=1)
    assert len(compiled) == 2
    ran(repeated, ONE, 2, static=1, options={"xla_backend_optimization_level": 0})
    assert len(compiled) == 3


def test_donated_memory_decides():
    for donated in ((), 0):
        traced = jax.jit(lambda a: a + 1, donate_argnums=donated).trace(ONE)
        program_cache.compiled(
            "same", program_cache.identity_of(traced, (ONE,)), traced.lower().compile
        )
    assert len(program_cache._programs) == 2


SWITCHES = {
    "x64": lambda: jax.enable_x64(True),
    "precision of products": lambda: jax.default_matmul_precision("highest"),
    "debugging": lambda: jax.debug_nans(True),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_the_configuration_of_jax_decides(name, compiled):
    function = program_cache.jit(lambda a: a @ a)
    for switched in (False, True, False):
        if switched:
            with SWITCHES[name]():
                function(jnp.ones((2, 2), jnp.float32))
                ran(lambda a: a @ a, jnp.ones((2, 2), jnp.float32))
        else:
            function(jnp.ones((2, 2), jnp.float32))
            ran(lambda a: a @ a, jnp.ones((2, 2), jnp.float32))
    assert len(compiled) == 2


def test_the_flags_of_xla_decide(compiled, monkeypatch):
    ran(lambda a: a + 1, ONE)
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    ran(lambda a: a + 1, ONE)
    assert len(compiled) == 2


def test_what_calls_python_is_never_kept():
    for number in (1, 2):

        def called(a, number=number):
            return jax.pure_callback(
                lambda a: np.float32(number), jax.ShapeDtypeStruct((), jnp.float32), a
            )

        assert ran(called, ONE) == number
        assert (
            ran(lambda a, called=called: jax.lax.cond(a > 0, called, lambda a: a, a), ONE) == number
        )
    assert not program_cache._programs


def test_what_prints_or_writes_elsewhere_is_never_kept():
    ran(lambda a: (jax.debug.callback(lambda: None), a)[1], ONE)
    for _ in range(2):
        place = jax.new_ref(jnp.zeros(()))

        def write(a, place=place):
            place[...] = a
            return a

        ran(write, TWO)
        assert place[...] == 2
    assert not program_cache._programs


def test_a_program_that_holds_much_is_never_kept():
    held = np.arange(program_cache._MOST_BYTES, dtype=np.float32)
    ran(lambda a: a + jnp.asarray(held), ONE)
    assert not program_cache._programs
    ran(lambda a: a + jnp.asarray(held[:9]), ONE)
    assert len(program_cache._programs) == 1


def test_arrays_that_a_program_holds_decide():
    for last in (2.0, 3.0):
        held = np.array([1.0] * 99 + [last], np.float32)
        assert ran(lambda a, held=held: a * jnp.asarray(held)[-1], ONE) == last
    keys = [jax.random.key(seed) for seed in (1, 2)]
    one, other = (ran(lambda a, key=key: a + jax.random.normal(key), ONE) for key in keys)
    assert one != other


def test_nothing_is_kept_where_jax_makes_arguments_of_constants(monkeypatch):
    monkeypatch.setattr(type(jax.config), "jax_use_simplified_jaxpr_constants", True, raising=False)
    ran(lambda a: a + 1, ONE)
    assert not program_cache._programs


class Own:
    """What can be compared only with itself."""

    def __eq__(self, other):
        if other is not self:
            raise TypeError("not comparable")
        return True

    def __hash__(self):
        return 1


class Odd:
    """A node of a tree."""

    def __init__(self, value):
        self.value, self.own = value, Own()


jax.tree_util.register_pytree_node(
    Odd, lambda odd: ((odd.value,), odd.own), lambda _, leaves: Odd(*leaves)
)


def test_trees_that_cannot_be_compared_are_not_the_same():
    traced = jax.jit(lambda odd: odd.value + 1).trace(Odd(ONE))
    identity, made = program_cache.identity_of(traced, (ONE,)), []
    for trees in (identity.trees, (jax.tree.structure(Odd(ONE)),)):
        program_cache.compiled("same", identity._replace(trees=trees), lambda: made.append(1))
    assert len(made) == 2


@pytest.mark.thorough
def test_few_programs_are_kept_and_those_used_last(compiled):
    def use(number):
        ran(lambda a: a + number, ONE)

    for number in range(program_cache.MOST + 3):
        use(number)
        use(0)
    assert len(program_cache._programs) == program_cache.MOST
    assert len(compiled) == program_cache.MOST + 3
    use(0)
    assert len(compiled) == program_cache.MOST + 3
    use(1)
    assert len(compiled) == program_cache.MOST + 4


def test_nothing_that_was_traced_is_held():
    offset, argument = jnp.ones(7), jnp.arange(7.0)

    def function(a, offset=offset):
        return a + offset

    result = ran(function, argument)
    seen = [weakref.ref(each) for each in (function, argument, result, offset)]
    assert len(program_cache._programs) == 1
    del function, argument, result, offset
    gc.collect()
    assert [reference() for reference in seen] == [None] * 4


def test_threads_may_use_one_program():
    function, found = program_cache.jit(lambda a: a + 1), []
    threads = [
        threading.Thread(
            target=lambda number=number: found.append(int(function(jnp.int32(number))))
        )
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(1, 9))


def test_a_function_may_be_traced_within_another():
    inner = program_cache.jit(lambda a: a + 1)
    assert jax.jit(lambda a: inner(a) * 2)(ONE) == 4
    assert (jax.vmap(inner)(jnp.arange(3.0)) == jnp.arange(1.0, 4.0)).all()
