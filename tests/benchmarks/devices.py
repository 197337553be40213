"""What a step on several devices exchanges and computes, counted in the programs that XLA compiles for simulated devices.

    python devices.py [--rate Q] [--model logistic|vae]

No seconds: simulated devices share the cores of one machine. A row is a number of devices. Bytes are those that a device
gives to an all-reduce in a step, and exchanges are how many collective operations a step has, of any kind. Operations and
bytes touched are XLA's estimates of one device's part of a step; the least is that of a step whose minibatch is one place.
"""

import argparse
import math
import os
import re

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.optim import Adam

import workbench as wb
from workbench.inference.assemble import assemble
from workbench.inference.sharding import Shards
from workbench.inference.step import Hyperparameters
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism
from workbench.sampling import PoissonSampler
from workbench.sampling.poisson import overflow_capacity

DEVICES = (1, 2, 4, 8)
COLLECTIVES = r"all-reduce|all-gather|all-to-all|collective-permute|collective-broadcast|reduce-scatter"
BYTES = {"pred": 1, "s8": 1, "u8": 1, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}
