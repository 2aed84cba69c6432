"""A run's configuration as verl's: what is carried over, what is refused, and what the dry run says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from memagent.cluster.layout import describe
from memagent.cluster.served import served_model
from memagent.cluster.settings import experiment_of, verl_config
from memagent.core.budgets import template_tokens
from memagent.errors import ConfigError, ModelError
from memagent.training.config import load_config
from memagent.training.model import load_model
from memagent.training.rl_config import RlConfig
from memagent.training.rollout import policy_settings
from tests.cluster.runs import memagent

Experiment = Callable[..., RlConfig]


def test_the_algorithm_is_carried_over(experiment: Experiment, tmp_path: Path) -> None:
    changes = ("algorithm.clip_low=0.1", "algorithm.clip_high=0.3", "algorithm.dual_clip=2.5", "rollout.temperature=1.2")
    found = verl_config(experiment("qwen2", *changes), tmp_path)
    actor, rollout = found.actor_rollout_ref.actor, found.actor_rollout_ref.rollout
    assert (actor.clip_ratio_low, actor.clip_ratio_high, actor.clip_ratio_c) == (0.1, 0.3, 2.5)
    assert (actor.use_kl_loss, actor.kl_loss_coef, actor.kl_loss_type) == (True, 0.01, "low_var_kl")
    assert (actor.loss_agg_mode, actor.entropy_coeff) == ("token-mean", 0.0)
    assert (found.algorithm.adv_estimator, found.algorithm.norm_adv_by_std_in_grpo) == ("grpo", False)
    assert found.algorithm.rollout_correction.bypass_mode is True
    assert (rollout.n, rollout.temperature, found.data.train_batch_size) == (4, 1.2, 4)
    assert found.data.max_prompt_length + found.data.max_response_length == rollout.max_model_len <= 512


def test_without_a_penalty_there_is_no_reference_and_no_dual_clip(experiment: Experiment, tmp_path: Path) -> None:
    found = verl_config(experiment("qwen2", "algorithm.kl=0", 'algorithm.old_logprobs="recomputed"'), tmp_path)
    assert found.actor_rollout_ref.actor.use_kl_loss is False
    assert found.actor_rollout_ref.actor.clip_ratio_c > 4.9e8  # e^20, the largest ratio verl lets through
    assert found.algorithm.rollout_correction.bypass_mode is False


def test_the_reference_is_computed_with_the_precision_of_the_policy(experiment: Experiment, tmp_path: Path) -> None:
    for bf16, name in (("false", "fp32"), ("true", "bf16")):
        found = verl_config(experiment("qwen2", f"policy.bf16={bf16}"), tmp_path).actor_rollout_ref
        assert found.actor.fsdp_config.mixed_precision.param_dtype == name
        assert found.ref.fsdp_config.mixed_precision == found.actor.fsdp_config.mixed_precision


@pytest.mark.parametrize(("kind", "packed"), [("qwen2", True), ("llama", True), ("lfm2", False)])
def test_only_models_of_attention_are_packed(experiment: Experiment, tmp_path: Path, kind: str, packed: bool) -> None:
    assert verl_config(experiment(kind), tmp_path).actor_rollout_ref.model.use_remove_padding is packed


def test_the_experiment_travels_with_paths_that_hold_anywhere(experiment: Experiment, tmp_path: Path) -> None:
    config = experiment("qwen2")
    carried, out = experiment_of(verl_config(config, tmp_path / "run").data)
    assert carried == config
    assert out == tmp_path / "run"
    assert Path(carried.start).is_absolute()
    assert all(path.is_absolute() for path in carried.books)


def test_generated_text_travels_by_its_name(experiment: Experiment, tmp_path: Path) -> None:
    config = experiment("qwen2", 'books=["generated:log"]')
    carried, _ = experiment_of(verl_config(config, tmp_path / "run").data)
    assert carried.books == [Path("generated:log")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("update.average=0.9", "update.average is set, and verl keeps no average"),
        ('algorithm.normalise="std"', "algorithm.normalise is set"),
        ("algorithm.turns={noted=0.1}", "algorithm.turns is set"),
        ("validation.patience=3", "validation.patience is set"),
        ("policy.lora.rank=4", "policy.lora.rank is set"),
        ("update.batch_tokens=128", "update.batch_tokens is 128, and a conversation can have"),
        ('cluster.settings={"actor_rollout_ref.actor.clip_ratoi" = 1}', "actor_rollout_ref.actor.clip_ratoi"),
        ('cluster.settings={"actor_rollout_ref.rollout.n" = 16}', "actor_rollout_ref.rollout.n' follows from the other"),
        ('cluster.settings={"actor_rollout_ref.rollout" = {n = 16}}', "actor_rollout_ref.rollout' follows from the other"),
        (
            'cluster.settings={"actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype" = "fp16"}',
            "param_dtype' follows from the other",
        ),
        ('cluster.settings={"actor_rollout_ref.actor.ppo_epochs" = 2}', "ppo_epochs' follows .* or is not used"),
        ('cluster.settings={"trainer.logger" = ["nobody"], "algorithm.gama" = 1}', "algorithm.gama"),
    ],
)
def test_what_verl_cannot_do_is_refused_by_name(experiment: Experiment, tmp_path: Path, change: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        verl_config(experiment("qwen2", change), tmp_path)


def test_a_field_of_verls_own_can_be_set(experiment: Experiment, tmp_path: Path) -> None:
    changes = '{"actor_rollout_ref.rollout.enforce_eager" = true, "actor_rollout_ref.actor.use_torch_compile" = true}'
    found = verl_config(experiment("qwen2", f"cluster.settings={changes}"), tmp_path).actor_rollout_ref
    assert (found.rollout.enforce_eager, found.actor.use_torch_compile) == (True, True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (('cluster.device="cuda"',), "device = 'cuda' does not go with rollout = 'inprocess'"),
        (("cluster.tensor_parallel=2",), "tensor_parallel is for accelerators"),
        (
            ('cluster.device="cuda"', 'cluster.rollout="vllm"', "cluster.devices=3", "cluster.tensor_parallel=2"),
            "1 × 3 accelerators cannot be shared out",
        ),
        (
            (
                'cluster.device="cuda"',
                'cluster.rollout="vllm"',
                "cluster.nodes=3",
                "cluster.devices=8",
                "cluster.tensor_parallel=3",
                'cluster.address="auto"',
            ),
            "3 × 8 accelerators cannot be shared out .* a divisor of the machine's",
        ),
        (("cluster.nodes=0",), "cluster.nodes"),
        (("cluster.nodes=2",), "nodes = 2 needs a Ray that runs on them"),
    ],
)
def test_a_world_that_cannot_be_is_refused(experiment: Experiment, changes: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        experiment("qwen2", *changes)


def test_a_wrong_model_is_one_error_before_anything_starts(experiment: Experiment, tmp_path: Path) -> None:
    config = experiment("qwen2", 'start="/nowhere/model"')
    with pytest.raises(ModelError, match="/nowhere/model"):
        verl_config(config, tmp_path)


def test_a_tokenizer_of_another_model_is_refused(experiment: Experiment, tmp_path: Path) -> None:
    config = experiment("qwen2")
    settings = Path(config.start) / "config.json"
    settings.write_text(settings.read_text().replace('"vocab_size": 300', '"vocab_size": 200'))
    with pytest.raises(ModelError, match="the tokenizer has 300 tokens, the model knows 200"):
        verl_config(config, tmp_path)


def test_prompts_have_room_for_the_longest_wording_of_all_readers(experiment: Experiment, tmp_path: Path) -> None:
    def longest(*changes: str) -> int:
        return int(verl_config(experiment("qwen2", *changes), tmp_path).data.max_prompt_length)

    plain = longest()
    assert longest("rollout.reader=gated") > plain  # it also says what the short form is
    part = 'name = "one", task = "niah_single_2", tokens = [200, 300]'
    assert longest(f'task=[{{{part}, reader = "gated"}}]') == longest("rollout.reader=gated")
    with pytest.raises(ConfigError, match="'speed'"):
        longest(f'task=[{{{part}, reader = "speed"}}]')


def test_budgets_that_do_not_fit_the_window_are_refused(experiment: Experiment, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="window"):
        verl_config(experiment("qwen2", "rollout.chunk_tokens=600"), tmp_path)


def test_the_dry_run_says_what_a_batch_comes_to(experiment: Experiment) -> None:
    config = experiment("qwen2", "cluster.devices=2")
    text = "\n".join(describe(config))
    assert "1 node(s) × 2 cpu = 2 learners" in text
    assert "4 documents × 4 readings = 16; 2 optimizer steps of 8 to 8 readings" in text
    assert "up to 300 tokens, so up to 5 memory updates of 60 tokens" in text
    opened = served_model(Path(config.start))
    settings = policy_settings(config, opened, config.rollout)
    wording = template_tokens(settings.profile, opened.engine.tokenizer, opened.engine.overhead)
    assert wording > 0
    update = 8 * (5 * (wording + 40 + 60 + 24 + 24) + wording + 40 + 24 + 24)
    assert f"update: at most {update:,} tokens, {update // 2:,} a learner" in text
    assert "2 learners, 2 rollout server(s), 1 readers of documents; Ray needs 15 CPUs" in text
    parameters = sum(value.numel() for value in load_model(Path(config.start)).parameters())
    assert f"{16 * parameters / 2 / 2**30:.2f} GiB for its share of weights, gradients and AdamW's states" in text
    assert f"(8 bytes × {config.update.batch_tokens:,} tokens × 300); activations come on top" in text
    assert "reference: 0.00 GiB in the main memory of every machine" in text
    assert "reference:" not in "\n".join(describe(experiment("qwen2", "algorithm.kl=0")))


def test_a_dry_run_prints_verls_configuration_and_nothing_else(experiment: Experiment, tmp_path: Path) -> None:
    config = Path(experiment("qwen2").start).parent / "rl.toml"
    run = tmp_path / "run"
    shown = memagent("train", "rl", config, "-o", run, "--engine", "verl", "--dry-run", "--set", "rollout.group=7")
    assert (shown.returncode, run.exists()) == (0, False), shown.stderr
    notes = [line for line in shown.stdout.splitlines() if line.startswith("#")]
    assert notes[0] == "# world: 1 node(s) × 1 cpu = 1 learners (FSDP2 over all)"
    resolved = OmegaConf.create(shown.stdout)  # notes are comments of YAML
    assert (resolved.actor_rollout_ref.rollout.n, resolved.trainer.device) == (7, "cpu")
    assert resolved.actor_rollout_ref.model.path == load_config(config, RlConfig).start
    wrong = memagent("train", "rl", config, "-o", run, "--engine", "verl", "--dry-run", "--set", "update.average=0.9")
    assert (wrong.returncode, wrong.stdout, run.exists()) == (2, "", False)
    assert "update.average is set" in " ".join(wrong.stderr.split())


def test_servers_on_accelerators_are_taken_by_verls_schema(experiment: Experiment, tmp_path: Path) -> None:
    for server in ("vllm", "sglang"):
        changes = ('cluster.device="cuda"', f'cluster.rollout="{server}"', "cluster.devices=8", "cluster.tensor_parallel=2")
        found = verl_config(experiment("qwen2", *changes, "policy.bf16=true", "cluster.offload=true"), tmp_path)
        rollout, actor = found.actor_rollout_ref.rollout, found.actor_rollout_ref.actor
        assert (rollout.name, rollout.tensor_model_parallel_size, rollout.dtype) == (server, 2, "bfloat16")
        assert (found.trainer.n_gpus_per_node, found.trainer.device) == (8, "cuda")
        assert (actor.fsdp_config.param_offload, actor.fsdp_config.optimizer_offload) == (True, True)
        with pytest.raises(ConfigError, match=r"rollout.top_p is set"):
            verl_config(experiment("qwen2", *changes, "policy.bf16=true", "rollout.top_p=0.9"), tmp_path)
        with pytest.raises(ConfigError, match=r"policy.bf16 is false, .* set it to true"):
            verl_config(experiment("qwen2", *changes), tmp_path)


def test_the_optimizer_is_that_of_the_small_trainer(experiment: Experiment, tmp_path: Path) -> None:
    changes = ("update.rate=3e-4", "update.weight_decay=0.05", "update.betas=[0.8, 0.9]", "update.clip=0.7")
    actor = verl_config(experiment("qwen2", *changes), tmp_path).actor_rollout_ref.actor
    assert (actor.optim.lr, actor.optim.weight_decay, list(actor.optim.betas)) == (3e-4, 0.05, [0.8, 0.9])
    assert (actor.optim.clip_grad, actor.grad_clip, actor.optim.lr_warmup_steps) == (0.7, 0.7, 0)
