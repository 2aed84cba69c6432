"""Parameters, FLOPs, bytes and seconds of one training step. Pure arithmetic on stated constants.

    forward pass of a conversation of s tokens    2 · weights · s  +  2 · layers · hidden · s²     (causal attention)
    log-probabilities                             one forward pass, once for the old policy, once for the reference
    update                                        4 forward passes: forward, recomputed forward, and twice for backward
    a decoding step of b replies                  read all weights and all caches once; or compute, if that is slower

Units: bytes, seconds, FLOPs, tokens. `gpus` is a number of GPUs, in whole machines above one machine.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

BF16, FP32 = 2, 4


def constant(value: float, unit: str, kind: str, source: str) -> float:
    """A dataclass field that knows its unit, its kind (published, measured, assumed) and its source."""
    return field(default=value, metadata={"unit": unit, "kind": kind, "source": source})


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One GPU, its machine and its network, and the share of each that programs reach."""

    peak: float = constant(989e12, "FLOP/s", "published", "H100 SXM, bf16, dense")
    memory: float = constant(80e9, "bytes", "published", "H100 SXM")
    bandwidth: float = constant(3.35e12, "bytes/s", "published", "H100 SXM")
    nvlink: float = constant(450e9, "bytes/s", "published", "H100 SXM, one direction")
    adapter: float = constant(50e9, "bytes/s a GPU", "published", "400 Gb/s a GPU, as in torchtitan's runs")
    per_machine: float = constant(8, "GPUs", "published", "DGX/HGX H100")
    network_share: float = constant(
        0.7, "of the links", "assumed", "between NCCL issue 1218 (0.5) and nccl-tests issue 290 (0.92)"
    )
    train_share: float = constant(
        0.34, "of peak", "published, converted", "torchtitan: 5,605 tokens/s a GPU, Llama 8B, 128 H100"
    )
    score_share: float = constant(0.34, "of peak", "assumed", "log-probabilities: as training, same program")
    prefill_share: float = constant(
        0.5, "of peak", "published, rounded down", "tt-inference-server issue 143: 0.59, Qwen2.5-72B, 2 H100"
    )
    decode_share: float = constant(
        0.69, "of bandwidth", "published, converted", "InferenceBench: vLLM, Llama 8B, H100: 6.48 ms"
    )
    all_reduce: float = constant(15e-6, "s each", "assumed", "tensor parallelism: two a layer and pass")
    workspace: float = constant(6e9, "bytes", "assumed", "CUDA context, NCCL buffers, fragmentation")
    logit_bytes: float = constant(8, "bytes a token and word", "assumed", "bf16 logits and gradient, one fp32 copy")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The experiment of the release: what is read, and how it is trained on."""

    group: float = constant(16, "readings a prompt", "published", "release, run_memory_7B.sh")
    updates: float = constant(16, "a rollout batch", "published", "release: 128 / 8 and 256 / 16 prompts")
    document: float = constant(28_000, "tokens", "published", "paper: 200 articles")
    document_spread: float = constant(1_400, "tokens, s.d.", "assumed", "200 articles, s.d. of one 100 tokens")
    chunk: float = constant(4_874, "tokens", "measured", "benchmarks/streaming.py: mean chunk where 5,000 are allowed")
    max_chunks: float = constant(8, "a document", "published", "release")
    question: float = constant(30, "tokens", "assumed", "HotpotQA; 1,024 are allowed")
    template: float = constant(200, "tokens", "published", "paper, compute model: memory update")
    answer_template: float = constant(100, "tokens", "published", "paper, compute model: answer")
    memory: float = constant(400, "tokens, mean", "assumed", "length of a memory before the limit")
    answer: float = constant(200, "tokens, mean", "assumed", "length of an answer before the limit")
    spread: float = constant(0.5, "s.d. / mean", "assumed", "log-normal lengths of memories and answers")
    reply_limit: float = constant(1_024, "tokens", "published", "release, memory and answer")
    micro_batch: float = constant(16_384, "tokens a GPU", "published", "release, update; halved where it does not fit")
    score_batch: float = constant(32_768, "tokens a GPU", "published", "release, log-probabilities")
    max_running: float = constant(256, "replies a replica", "published", "verl's default, rollout.max_num_seqs")
    staleness: float = constant(2, "rollout batches", "assumed", "asynchronous rollouts; AReaL's guide shows 4")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A dense Qwen2.5 model (its config.json), and how the experiment runs it."""

    name: str
    layers: int
    hidden: int
    kv_heads: int
    intermediate: int
    published: float
    prompts: int
    tensor_parallel: int
    head: int = 128
    vocabulary: int = 152_064

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head

    @property
    def layer(self) -> int:
        """Parameters of a layer: attention with biases on q, k and v, a gated MLP, two norms."""
        attention = 2 * self.hidden**2 + 2 * self.hidden * self.kv_width + self.hidden + 2 * self.kv_width
        return attention + 3 * self.hidden * self.intermediate + 2 * self.hidden

    @property
    def embedding(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All of them; input and output embeddings are two matrices."""
        return self.layers * self.layer + 2 * self.embedding + self.hidden

    @property
    def kv_bytes(self) -> int:
        """Cache of one token."""
        return 2 * self.layers * self.kv_width * BF16

    def forward(self, tokens: float, scored: float) -> float:
        """FLOPs of a forward pass over one conversation, with logits at `scored` of its tokens."""
        return (
            2 * self.layers * self.layer * tokens + 2 * self.layers * self.hidden * tokens**2 + 2 * self.embedding * scored
        )


# Prompts of 7B and 14B and their tensor parallel sizes are the release's; those of 32B are assumed.
SHAPES = {
    shape.name: shape
    for shape in (
        Shape(
            name="7B", layers=28, hidden=3584, kv_heads=4, intermediate=18944, published=7.61e9, prompts=128,
            tensor_parallel=1,
        ),
        Shape(
            name="14B", layers=48, hidden=5120, kv_heads=8, intermediate=13824, published=14.7e9, prompts=256,
            tensor_parallel=2,
        ),
        Shape(
            name="32B", layers=64, hidden=5120, kv_heads=8, intermediate=27648, published=32.5e9, prompts=256,
            tensor_parallel=4,
        ),
    )
}  # fmt: skip


def check(name: str, gpus: int, machine: Machine) -> Shape:
    """The shape of that name, if it can run on that many GPUs; otherwise a ValueError that says what can."""
    if name not in SHAPES:
        raise ValueError(f"model {name!r} is not known; known are {', '.join(SHAPES)}")
    if gpus < 1:
        raise ValueError(f"{gpus} GPUs: at least 1 is needed; give for example --gpus 8")
    shape, whole = SHAPES[name], int(machine.per_machine)
    if gpus % shape.tensor_parallel:
        raise ValueError(
            f"{gpus} GPUs: {name} runs on {shape.tensor_parallel} GPUs a replica (tensor parallel); give a multiple of"
            f" {shape.tensor_parallel}"
        )
    if gpus > whole and gpus % whole:
        raise ValueError(f"{gpus} GPUs: above {whole} only whole machines of {whole}; give {ceil(gpus / whole) * whole}")
    return shape


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on one GPU in the update, under FSDP2 over all GPUs that train."""

    weights: float
    gradients: float
    optimizer: float
    reference: float
    activations: float
    logits: float
    gathered: float
    workspace: float

    @property
    def states(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.reference

    @property
    def total(self) -> float:
        return self.states + self.activations + self.logits + self.gathered + self.workspace


def update_memory(shape: Shape, gpus: int, tokens: float, machine: Machine) -> Memory:
    """fp32 master weights, gradients and AdamW; a bf16 reference; every layer's input kept, one layer recomputed.

    `gathered`: two layers in bf16 (in use and prefetched), the gradient of one before and after its conversion to fp32,
    and both embeddings, which FSDP keeps gathered from forward to backward.
    `activations`: the inputs of all layers, and what one layer keeps for its backward pass, with gradients.
    """
    each = shape.parameters / gpus
    one_layer = 2 * BF16 * (6 * shape.hidden + 2 * shape.kv_width + 4 * shape.intermediate)
    return Memory(
        weights=FP32 * each,
        gradients=FP32 * each,
        optimizer=2 * FP32 * each,
        reference=BF16 * each,
        activations=tokens * (shape.layers * shape.hidden * BF16 + one_layer),
        logits=tokens * shape.vocabulary * machine.logit_bytes,
        gathered=(2 * BF16 + BF16 + FP32) * shape.layer + (BF16 + BF16 + FP32) * 2 * shape.embedding,
        workspace=machine.workspace,
    )


def micro_batch(shape: Shape, gpus: int, machine: Machine, experiment: Experiment) -> int:
    """Tokens of a micro-batch: the release's, or half of it (one conversation); 0 if the update does not fit."""
    for tokens in (int(experiment.micro_batch), int(experiment.micro_batch) // 2):
        if update_memory(shape, gpus, tokens, machine).total <= machine.memory:
            return tokens
    return 0


def window(experiment: Experiment) -> int:
    """Tokens of the longest turn: a full memory, a full chunk and the longest reply."""
    return int(experiment.template + experiment.question + experiment.chunk + 2 * experiment.reply_limit)


def kv_room(shape: Shape, resident: float, machine: Machine) -> float:
    """Tokens of cache on one replica beside its weights and `resident` bytes a GPU; below 0 if the weights do not fit."""
    free = machine.memory - machine.workspace - resident - BF16 * shape.parameters / shape.tensor_parallel
    return free * shape.tensor_parallel / shape.kv_bytes


def resident_states(shape: Shape, gpus: int) -> float:
    """Bytes a GPU that training keeps there during a rollout: all states but gradients."""
    return (3 * FP32 + BF16) * shape.parameters / gpus


def bus(gpus: int, machine: Machine) -> float:
    """Bytes/s at which every GPU receives in a collective: NVLink, or all adapters of a machine shared by its GPUs.

    In a ring over machines each byte enters a machine once and goes round inside it by NVLink.
    """
    if gpus <= machine.per_machine:
        return machine.nvlink * machine.network_share
    return min(machine.nvlink, machine.adapter * machine.per_machine) * machine.network_share


def gather_bytes(shape: Shape, gpus: int, width: int) -> float:
    """Bytes a GPU receives to gather (or sends to scatter) all parameters of `width` bytes once."""
    return width * shape.parameters * (gpus - 1) / gpus


def sync_seconds(shape: Shape, gpus: int, machine: Machine) -> float:
    """Trainer shards to rollout weights: every machine receives the bf16 model once."""
    return gather_bytes(shape, gpus, BF16) / bus(gpus, machine)


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A phase of the trainer: seconds, and what they would be if only computing, only the network, or even rows counted."""

    seconds: float
    compute: float
    network: float
    even: float
    micro_batches: int
    traffic: float

    @property
    def bound(self) -> str:
        return "network" if self.network > self.compute else "compute"


def heaviest(shape: Shape, rows: Sequence[int], gpus: int) -> tuple[float, float]:
    """FLOPs of one forward pass and tokens on the fullest GPU; rows go, longest first, to the emptiest."""
    bins = [(0.0, 0)] * gpus
    for tokens in sorted(rows, reverse=True):
        flops, held = bins[0]
        heapq.heapreplace(bins, (flops + shape.forward(tokens, tokens), held + tokens))
    return max(flops for flops, _ in bins), max(tokens for _, tokens in bins)


def phase(
    shape: Shape, batches: Sequence[Sequence[int]], gpus: int, machine: Machine, *,
    passes: int, share: float, budget: float, widths: Sequence[int],
) -> Phase:  # fmt: skip
    """Batches of rows, one after the other, each spread over all GPUs.

    A row costs `passes` forward passes; a micro-batch moves all parameters once for each of `widths`, in bytes each.
    Computing and network overlap: a batch takes as long as the slower of them.
    """
    seconds = compute = network = even = 0.0
    micro_batches = 0
    traffic = sum(gather_bytes(shape, gpus, width) for width in widths)
    for rows in batches:
        flops, tokens = heaviest(shape, rows, gpus)
        parts = ceil(tokens / budget)
        computing = passes * flops / (machine.peak * share)
        moving = parts * traffic / bus(gpus, machine)
        seconds += max(computing, moving)
        compute, network, micro_batches = compute + computing, network + moving, micro_batches + parts
        even += passes * sum(shape.forward(row, row) for row in rows) / gpus / (machine.peak * share)
    return Phase(
        seconds=seconds, compute=compute, network=network, even=even, micro_batches=micro_batches,
        traffic=micro_batches * traffic,
    )  # fmt: skip


def score(shape: Shape, rows: Sequence[int], gpus: int, machine: Machine, experiment: Experiment) -> Phase:
    """Log-probabilities of all rows under one model."""
    return phase(
        shape, [rows], gpus, machine, passes=1, share=machine.score_share, budget=experiment.score_batch, widths=[BF16]
    )


def update(shape: Shape, batches: Sequence[Sequence[int]], gpus: int, machine: Machine, experiment: Experiment) -> Phase:
    """All optimizer steps of a rollout batch; gathers in bf16 forward and backward, scatters gradients in fp32."""
    budget = micro_batch(shape, gpus, machine, experiment) or experiment.micro_batch / 2
    return phase(
        shape, batches, gpus, machine, passes=4, share=machine.train_share, budget=budget, widths=[BF16, BF16, FP32]
    )


@dataclass(frozen=True, kw_only=True)
class Engine:
    """How long a replica takes; coefficients in seconds."""

    per_token: float
    per_square: float
    per_prompt: float
    weights: float
    per_reply: float
    per_context: float
    latency: float

    def prefill(self, prompt: float) -> float:
        """Seconds to read one prompt."""
        return self.per_prompt + self.per_token * prompt + self.per_square * prompt**2

    def decode(self, replies: float, context: float) -> float:
        """Seconds of one decoding step of all replies; `context`: their tokens in the cache, together."""
        return max(self.weights, self.per_reply * replies) + self.per_context * context + self.latency


def engine(shape: Shape, machine: Machine) -> Engine:
    """A replica of the shape's tensor parallel size."""
    size = shape.tensor_parallel
    flops = machine.peak * machine.prefill_share * size
    read = machine.bandwidth * machine.decode_share * size
    used = shape.layers * shape.layer + shape.embedding
    reduced = 2 * shape.layers * 2 * (size - 1) / size * shape.hidden * BF16 / (machine.nvlink * machine.network_share)
    return Engine(
        per_token=2 * shape.layers * shape.layer / flops + reduced,
        per_square=2 * shape.layers * shape.hidden / flops,
        per_prompt=2 * shape.embedding / flops,
        weights=BF16 * used / read,
        per_reply=2 * used / flops,
        per_context=shape.kv_bytes / read,
        latency=2 * shape.layers * machine.all_reduce if size > 1 else 0.0,
    )
