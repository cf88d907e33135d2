"""Settings for the whole suite."""

import os
import random

import numpy as np
import pytest
import torch
from hypothesis import settings

pytest_plugins = [
    "browser_fixtures",
    "speed_fixtures",
    "verify_fixtures",
]  # fixtures of several files, made once
settings.register_profile("suite", deadline=None, max_examples=40)
settings.load_profile("suite")
torch.set_num_threads(1)  # small networks: threads would only wait for each other


def pytest_configure(config: pytest.Config) -> None:
    """Only the tests of a GPU see one: the others show what a CPU does, on every machine."""
    if "not gpu" in config.option.markexpr:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


@pytest.fixture(autouse=True)
def the_same_chance_every_time() -> None:
    """Whatever ran before in this process, a test draws the same numbers."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
