"""verifiers' own plug-in loader and environment, against a scripted endpoint."""

import asyncio
import sys
from pathlib import Path

import pytest

pytest.importorskip("verifiers.v1", reason="tests/adapters/run.sh verifiers")

import verifiers.v1 as vf
from verifiers.v1.utils.loaders import harness_class, taskset_class

from tests.adapters.drivers import scripted_server
from tests.adapters.questions import export_for, make_manifest, make_schedule, right_answer

sys.path.insert(0, str(Path(__file__).parents[3] / "pipelines" / "trainers" / "verifiers"))


def test_the_plugin_is_found_by_name() -> None:
    assert taskset_class("envbuild-verifiers").__name__ == "EpisodeTaskset"
    assert harness_class("envbuild-verifiers").__name__ == "EpisodeHarness"


def test_many_tasks_run_in_process_and_keep_schedule_order(tmp_path: Path) -> None:
    manifest = make_manifest(tmp_path / "manifest")
    plan = make_schedule(steps=4, questions=2, episodes=2)
    export = export_for(manifest, tmp_path / "data", "verifiers", plan)
    taskset = taskset_class("envbuild-verifiers")
    config = taskset.__orig_bases__[0].__args__[1](export=str(export), manifest=str(manifest))
    tasks = list(taskset(config))
    assert len(tasks) == 8 and {t.data.idx for t in tasks} == set(range(8))

    async def run_all() -> list[vf.Trace]:
        async def run(task: vf.Task) -> vf.Trace:
            with scripted_server(right_answer(task.data.name)) as address:
                client = vf.EvalClientConfig(base_url=address, api_key_var="UNUSED")
                agent = vf.Agent(
                    vf.AgentConfig(
                        harness={"id": "envbuild-verifiers"},
                        model="scripted",
                        client=client,
                        runtime=vf.SubprocessConfig(),
                    )
                )
                return await agent.run(task)

        return list(await asyncio.gather(*(run(task) for task in tasks)))

    traces = asyncio.run(run_all())
    assert [trace.reward for trace in traces] == [3.0] * 8
    assert all(trace.metrics["group_seen"] == 0.0 for trace in traces)
    assert all(trace.info["envbuild"]["ended_by"] == "submit_sql" for trace in traces)
