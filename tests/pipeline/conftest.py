"""Ray, for the tests of what an engine spreads."""

import os
from pathlib import Path

import engine_work
import pytest


@pytest.fixture(scope="session")
def ray_engine(_s3):
    """One Ray for all tests, on two processors. Its workers have the environment of its start, so S3 comes first."""
    pytest.importorskip("ray", reason="needs Ray: pip install 'potstill[scale]'")
    from potstill.pipeline.engines.ray import RayEngine

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(engine_work.__file__).parent), prepend=os.pathsep)
        patch.setenv("RAY_worker_niceness", "0")  # or workers make way for whatever else a busy machine does
        patch.setenv("RAY_AUTH_TOKEN", "0" * 64)  # or Ray writes one into the user's folder
        engine = RayEngine(num_cpus=2, object_store_memory=100 * 1024**2, include_dashboard=False)
        yield engine
        engine.close()
