"""What ``workbench fit --processes`` takes for granted about JAX."""

import pytest
from jax._src import distributed, xla_bridge
from jax._src.lib import _jax

from workbench import ArgumentError
from workbench.cli import processes


def test_jax_begins_gloo_at_the_address_that_it_is_given(monkeypatch):
    """If this fails, JAX has changed: look for a setting, or change ``_listen_here``."""
    begun = []
    assert "hostname" in _jax.make_gloo_tcp_collectives.__doc__
    monkeypatch.setattr(_jax, "make_gloo_tcp_collectives", lambda **options: begun.append(options))
    monkeypatch.setattr(distributed.global_state, "client", object())
    monkeypatch.setattr(xla_bridge.xla_client, "make_cpu_client", lambda **options: None)
    with pytest.raises(
        ArgumentError, match=r"cannot be kept to 127\.0\.0\.1 with this version of JAX"
    ):
        processes._require_here(2)
    monkeypatch.setattr(processes, "_here", type(processes._here)())
    processes._listen_here()
    xla_bridge.make_cpu_client()
    assert [options["hostname"] for options in begun] == ["127.0.0.1"]
    processes._require_here(2)
