"""The commands of longshore: configuration, the driver that runs everything else, and all that shows a run to people.

Packages, by purpose.  :mod:`launch.cli` lists every command with its module; ``cluster``, ``environment``, ``report``
and ``completion`` are commands of one module.

A run, from above:

- ``run``: one run from its command line to its summary; its driver starts the packages below.
- ``training``: the training loop; ``weight_sync``: published versions to the engines, while rollout continues.
- ``checkpoints``: writing, keeping, exporting; ``control``: requests to a run, and ``ctl``, which sends them;
  ``alerts``: rules over its events.
- ``stall_diagnosis``: who waits for whom when nothing proceeds.
- ``data``: tasks, the starting model (also the model of the demo) and the warm start.
- ``actor_group``: the run's actors; ``hosts``: its nodes; ``processes``: local processes and tasks.
- ``run_records``: the records of a run in its directory.
- ``settings``: the tables that launch declares; ``config``: all tables of a run, and the checks over them; ``recipes``:
  TOML files of them.

Looking at runs and evaluations:

- ``monitor``: web page, terminal UI, progress and report; ``pages``: the parts of every HTML page.
- ``exporters``: metrics to Prometheus and trackers; ``export``: trajectories in formats of other projects.
- ``trajectory_reader``: recorded trajectories as conversations; ``replay``: their actions, or training steps, again.
- ``runs``: a folder of runs; ``trace``: a run's processes over time.

Commands beside a run:

- ``evaluation``: attempts, scores and comparisons, for ``evaluate`` and ``compare`` and within a run.
- ``sft``: supervised training; ``sweep``: many runs or evaluations along axes.
- ``simulate``: training on a virtual clock; ``plan``: needs of a run before it starts.
- ``doctor``: checks of a machine; ``templates``: Slurm and KubeRay jobs; ``bench``: benchmarks.

The driver waits for its actors to start, then for the training loop to end.  Each step waits for a batch from the
buffer and for the learner; engines take new weights while the loop goes on.  A run waits for nobody who looks at it:
monitor, exporters and ``ctl`` read and write files of its directory.
"""

from protocol.dependencies import require_packages

require_packages("aiodocker", "ray", "rich", "xxhash")
