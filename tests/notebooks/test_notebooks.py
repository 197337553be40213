"""Every notebook is stored without outputs and runs from top to bottom."""

import json
import shutil
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped(path):
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


# nbclient's own event loops warn under "error"; what the notebook itself warns of goes to its
# outputs, tested below
@pytest.mark.integration  # tests/browser opens the first one, in JupyterLab, with every make test
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "path",
    NOTEBOOKS,
    ids=lambda path: path.stem,
)
def test_runs_from_top_to_bottom(path, tmp_path):
    import nbformat  # takes as long to import as all else that is collected
    from nbclient import NotebookClient

    shutil.copy(path, tmp_path)
    notebook = nbformat.read(tmp_path / path.name, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=240,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    shown = [
        output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
    ]
    assert shown
    for output in shown:
        assert output.get("name") != "stderr", output.text
