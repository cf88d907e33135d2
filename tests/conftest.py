"""Settings for the whole suite."""

import torch
from hypothesis import settings

settings.register_profile("suite", deadline=None, max_examples=40)
settings.load_profile("suite")
torch.set_num_threads(1)  # small networks: threads would only wait for each other
