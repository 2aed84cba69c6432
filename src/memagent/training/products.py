"""Products of matrices: in which type a policy computes them, and how fast this machine is at them."""

from __future__ import annotations

import time

import torch

from memagent.errors import ConfigError
from memagent.training.config import PolicyConfig
from memagent.training.policy import device_of

_SMALL = 256  # the side of products that take little time even where they are emulated


def bytes_of_weight(policy: PolicyConfig) -> int:
    """Bytes of a weight in memory."""
    return 2 if policy.dtype == "bfloat16" else 4


def bytes_computed(policy: PolicyConfig) -> int:
    """Bytes of a value that is computed."""
    return 2 if policy.bf16 else bytes_of_weight(policy)


def measured_flops(policy: PolicyConfig, seconds: float = 0.5, side: int = 0) -> float:
    """FLOP/s of products of large matrices, or of `side` rows and columns, as the run would compute them here. Raises
    ConfigError where the run's device is not there."""
    device = device_of(policy)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"policy.device is {policy.device!r}, and this machine has none: give its speed with --tflops")
    dtype = torch.bfloat16 if bytes_computed(policy) == 2 else torch.float32
    side = side or (4096 if device.type == "cuda" else 1024)
    drawn = torch.Generator(device).manual_seed(0)  # the run's own draws stay as they are
    one, other = (torch.randn(side, side, device=device, dtype=dtype, generator=drawn) for _ in range(2))

    def product() -> None:
        one @ other
        if device.type == "cuda":
            torch.cuda.synchronize()

    product()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        product()
        count += 1
    return 2.0 * side**3 * count / (time.perf_counter() - began)


def slower_in_bf16(policy: PolicyConfig) -> float:
    """How many times as long large products take in bfloat16 as in float32 on this machine, where the policy multiplies in
    bfloat16 on a CPU; 0.0 where it does not. A processor without such products emulates them."""
    if not policy.bf16 or device_of(policy).type != "cpu":
        return 0.0
    plain = policy.model_copy(update={"bf16": False})
    return measured_flops(plain, 0.1, _SMALL) / measured_flops(policy, 0.1, _SMALL)
