"""Starts SkyRL's trainer with envbuild's generator; arguments are SkyRL's own.

GPU: not run. The generator itself ran, with SkyRL 0.4's own classes and a scripted engine.
"""

import os
import sys

import ray
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.entrypoints.main_base import BasePPOExp, resolve_policy_model_name
from skyrl.train.utils import validate_cfg
from skyrl.train.utils.utils import initialize_ray


class Experiment(BasePPOExp):
    """SkyRL's experiment; only the generator is envbuild's."""

    def get_generator(self, cfg, tokenizer, inference_engine_client):
        from envbuild.train.skyrl import EpisodeGenerator

        return EpisodeGenerator(
            generator_cfg=cfg.generator,
            skyrl_gym_cfg=cfg.environment.skyrl_gym,
            inference_engine_client=inference_engine_client,
            tokenizer=tokenizer,
            policy_model_name=resolve_policy_model_name(cfg),
        )


@ray.remote(num_cpus=1)
def run(cfg):
    Experiment(cfg).run()


if __name__ == "__main__":
    settings = SkyRLTrainConfig.from_cli_overrides(sys.argv[1:])
    validate_cfg(settings)
    initialize_ray(settings)
    # a worker on another machine has not this one's environment
    names = ("ENVBUILD_MANIFEST", "ENVBUILD_RERUN_GOLDS")
    variables = {name: os.environ[name] for name in names if name in os.environ}
    ray.get(run.options(runtime_env={"env_vars": variables}).remote(settings))
