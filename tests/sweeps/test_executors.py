"""Sweeps on other processes: a worker that dies loses nothing, an executor that is lost keeps what
had finished.
"""

import concurrent.futures
import dataclasses
import multiprocessing
import os
import signal
import time
from concurrent.futures.process import BrokenProcessPool

import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.models import files
from workbench.models.scoring import binary_scores
from workbench.sweeps import executors, sweeping

PLAN = {"epsilons": [1.0, 2.0], "seeds": [0, 1], "iterations": 30}


FILE = """
import jax.numpy as jnp, numpyro, numpyro.distributions as dist

def mine(x, y=None, num_records=None):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)
"""


def dies(target, predictions):
    os.kill(os.getpid(), signal.SIGKILL)


def scored_by(score):
    return dataclasses.replace(wb.models.get("logistic"), score=score)


@pytest.fixture(scope="module")
def here():
    """The table of the same sweep in this process."""
    return sweeping.prepare("logistic", "breast_cancer", **PLAN).run().table


class Pool(concurrent.futures.ThreadPoolExecutor):
    """Does tasks in a thread, or ends them as a pool of processes does that has lost one."""

    def __init__(self, *outcomes):
        super().__init__(1)
        self.outcomes = list(outcomes)

    def submit(self, function, *arguments):
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if outcome is None:
            return super().submit(function, *arguments)
        future = concurrent.futures.Future()
        future.set_exception(outcome)
        return future


class KilledWorker(Exception):
    """As distributed calls it."""


def scores(table):
    return table.set_index(["epsilon", "seed"])["auc"].round(5).to_dict()


@pytest.mark.integration
def test_an_executor_gives_the_same_table(here):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        result = sweeping.prepare("logistic", "breast_cancer", **PLAN).run(executor=pool)
    assert result.status == "done"
    assert scores(result.table) == scores(here)


@pytest.mark.integration
def test_a_task_whose_worker_died_is_given_out_again(here):
    pool = Pool(KilledWorker("gone"), KilledWorker("gone"))
    result = sweeping.prepare("logistic", "breast_cancer", **PLAN).run(executor=pool)
    assert set(result.table["status"]) == {"done"}
    assert scores(result.table) == scores(here)


@pytest.mark.integration
def test_a_task_that_kills_every_worker_fails_and_the_others_run():
    pool = Pool(KilledWorker("gone"), None, KilledWorker("gone"), KilledWorker("gone"))
    prepared = sweeping.prepare("logistic", "breast_cancer", **PLAN)
    result = prepared.run(executor=pool, max_lanes=2)
    assert result.table["status"].value_counts().to_dict() == {"done": 2, "failed": 2}
    assert "KilledWorker: gone" in set(result.table["message"])


@pytest.mark.integration
def test_what_had_finished_is_kept_when_the_executor_is_lost(here, tmp_path):
    prepared = sweeping.prepare("logistic", "breast_cancer", store=tmp_path / "fits.sqlite", **PLAN)

    class Fragile(Pool):
        def submit(self, function, *arguments):
            future = super().submit(function, *arguments)
            if self.outcomes:
                # so that the first one is over before the pool breaks
                concurrent.futures.wait([future])
            return future

    pool = Fragile(None, BrokenProcessPool("a process died"))
    pool.outcomes.append(BrokenProcessPool("a process died"))
    result = prepared.run(executor=pool, max_lanes=2)
    assert (result.status, len(result.table)) == ("interrupted", 2)
    assert (
        "the executor was lost after 2 of 4 fits (BrokenProcessPool: a process died)"
        in result.message
    )
    again = sweeping.prepare("logistic", "breast_cancer", store=tmp_path / "fits.sqlite", **PLAN)
    assert len(again.runs) == 2
    assert scores(again.run().table) == scores(here)


@pytest.mark.thorough
def test_a_stop_ends_the_wait_for_others():
    prepared = sweeping.prepare("logistic", "breast_cancer", **PLAN)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(time.sleep, 1.0)  # so that nothing has begun
        result = prepared.run(lambda: True, executor=pool)
    assert (result.status, len(result.table)) == ("stopped", 0)


@pytest.mark.thorough
def test_a_model_that_cannot_be_sent_is_told():
    model = dataclasses.replace(wb.models.get("logistic"), score=lambda target, predictions: {})
    with (
        concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
        pytest.raises(ArgumentError, match=r"executor=.*cannot be sent to another process"),
    ):
        sweeping.prepare(model, "breast_cancer", **PLAN).run(executor=pool)


@pytest.mark.thorough
def test_a_cluster_without_workers_is_lost_and_not_waited_for(monkeypatch):
    monkeypatch.setattr(executors, "_PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(executors, "_ASK_SECONDS", 0.05)
    left = [2]

    class Client:
        def scheduler_info(self, n_workers):
            return {"workers": range(left.pop() if left else 0)}

        def get_executor(self, **options):
            return concurrent.futures.ThreadPoolExecutor(1, initializer=time.sleep, initargs=(2.0,))

    left.append(2)
    result = sweeping.prepare("logistic", "breast_cancer", **PLAN).run(executor=Client())
    assert (result.status, len(result.table)) == ("interrupted", 0)
    assert "there was no worker" in result.message


@pytest.mark.integration
def test_a_model_in_a_file_of_its_own_is_run_where_the_work_is_done(tmp_path, monkeypatch):
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    model = wb.models.from_file(f"{file}:mine")
    assert files.source_file(model) == file.resolve()
    assert files.source_file(wb.models.get("logistic")) is None
    ran = []
    monkeypatch.setattr(executors.files, "run_source", ran.append)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        result = sweeping.prepare(model, "breast_cancer", **{**PLAN, "epsilons": 1.0}).run(
            executor=pool
        )
    assert set(result.table["status"]) == {"done"}
    assert ran == [file.resolve()]


@pytest.mark.integration
def test_a_model_in_a_file_goes_to_another_process(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        result = sweeping.prepare(wb.models.from_file(f"{file}:mine"), "breast_cancer", **PLAN).run(
            executor=pool
        )
    assert set(result.table["status"]) == {"done"}


def test_only_executors_and_clients_are_taken():
    with pytest.raises(ArgumentError, match="executor='local'"):
        executors.as_workers("local")


@pytest.mark.integration
def test_a_pool_of_processes_that_loses_one_keeps_the_rest(tmp_path):
    prepared = sweeping.prepare(
        scored_by(dies), "breast_cancer", store=tmp_path / "fits.sqlite", **PLAN
    )
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        result = prepared.run(executor=pool)
    assert result.status == "interrupted"
    assert "BrokenProcessPool" in result.message


@pytest.mark.integration
@pytest.mark.filterwarnings("default")
def test_a_cluster_of_two_processes_of_which_one_is_killed(tmp_path, here):
    distributed = pytest.importorskip("distributed")
    flag = tmp_path / "has died"

    def dies_once(target, predictions):  # in here, for the workers cannot import this file
        try:
            flag.touch(exist_ok=False)
        except FileExistsError:
            return binary_scores(target, predictions)
        os.kill(os.getpid(), signal.SIGKILL)

    model = scored_by(dies_once)
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            local_directory=str(tmp_path),
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        fits = []
        prepared = sweeping.prepare(model, "breast_cancer", store=tmp_path / "fits.sqlite", **PLAN)
        result = prepared.run(
            on_progress=lambda progress: fits.append(progress.fits), executor=client
        )
    assert flag.exists()
    assert result.status == "done"
    assert fits[-1] == 4
    assert scores(result.table) == scores(here)
