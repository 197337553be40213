"""What tests share: fits whose steps are made up."""

import numpy as np
import pytest

from workbench.fitting import fits
from workbench.fitting.groups import Training


@pytest.mark.usefixtures("made_up_steps")
def test_made_up_fits_repeat_and_go_on_as_real_ones_do(private_data, monkeypatch):
    def prepared(seed):
        return fits.prepare(
            "logistic",
            private_data,
            epsilon=1.0,
            iterations=30,
            seed=seed,
            training=Training(average=True),
        )

    def params(fit):
        result = fit.result()
        assert result.status == "done"
        return result.params["weights_loc"]

    list(prepared(3).run())  # what checks the model and what shows parameters is compiled, and kept
    monkeypatch.setattr("jax.stages.Lowered.compile", lambda *_, **__: pytest.fail("compiled"))
    whole, again, other, paused = prepared(1), prepared(1), prepared(2), prepared(1)
    for fit in (whole, again, other):
        list(fit.run())
    chunks = iter([False, True])
    list(paused.run(lambda: next(chunks)))
    assert paused.can_resume
    list(paused.run())
    assert np.array_equal(params(whole), params(again))
    assert np.array_equal(params(whole), params(paused))
    assert not np.array_equal(params(whole), params(other))
