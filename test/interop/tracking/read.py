"""Prints, as JSON, what TensorBoard or MLflow has of exported runs."""

import json
import sys


def tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    tags = events.Tags()
    return {
        "scalars": {t: [[e.step, e.wall_time, e.value] for e in events.Scalars(t)] for t in tags["scalars"]},
        "texts": {t: events.Tensors(t)[0].tensor_proto.string_val[0].decode() for t in tags["tensors"]},
        "plugins": {t: events.SummaryMetadata(t).plugin_data.plugin_name for t in tags["tensors"]},
    }


def mlflow(url, experiment):
    from mlflow import MlflowClient

    client = MlflowClient(url)
    found = client.get_experiment_by_name(experiment)
    out = []
    for run in client.search_runs([found.experiment_id]):
        history = {
            name: [[m.step, m.timestamp, m.value] for m in client.get_metric_history(run.info.run_id, name)]
            for name in run.data.metrics
        }
        out.append({
            "name": run.info.run_name, "status": run.info.status, "start": run.info.start_time, "end": run.info.end_time,
            "params": run.data.params, "tags": run.data.tags, "metrics": history,
        })
    return out


print(json.dumps({"tensorboard": tensorboard, "mlflow": mlflow}[sys.argv[1]](*sys.argv[2:])))
