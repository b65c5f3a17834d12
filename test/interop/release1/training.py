"""The trainer's side of a step: models, rollouts with hooks, triplets."""

from agentlightning.hooks import RolloutHooks
from agentlightning.verl.agl_rollout_manager import AglRolloutManager


class Hooks(RolloutHooks):
    def __init__(self):
        self.seen = []

    def on_enqueue(self, request):
        request.metadata = {"batch_idx": 0, "from": "hook"}
        return request

    def on_succeeded(self, rollout, events, store):
        kinds = [e.event_type if hasattr(e, "event_type") else e["event_type"] for list_ in events.values() for e in list_]
        self.seen.append(["succeeded", sorted(events), kinds])
        store.add_event(rollout.rollout_id, rollout.status.last_attempt_id, "reward", {"value": 0.5, "source": "hook"})

    def on_failed(self, rollout, store):
        self.seen.append(["failed", rollout.status.error_message])
        store.add_event(rollout.rollout_id, rollout.status.last_attempt_id or "0", "reward", {"value": -1, "source": "fallback"})


def main(url, key, model, endpoint, questions, agents):
    hooks = Hooks()
    out = []
    for agent in agents:
        manager = AglRolloutManager(
            agl_base_url=url, agl_key=key, model=model, step=1, train_rollout_n=2, rollout_timeout_seconds=30,
            poll_interval_seconds=0.1, hooks=hooks, local_agent_class=agent,
            local_env_map={"QUESTION": "input.question", "RESULT": "input.result", "WHOLE": "input", "LITERAL": "as it is"},
        )
        manager.delete_model()
        manager.register_model([endpoint])
        data = {"question": [q for q, _ in questions], "result": [r for _, r in questions]}
        done = manager.enqueue_and_wait_until_completed(data, is_train=True)
        out.append([c.model_dump(mode="json") for c in done])
    left = manager.client.get("/api/rollouts", params={"state_in": ["queuing", "running", "succeeded", "failed"]})
    left.raise_for_status()
    return {"completed": out, "hooks": hooks.seen, "left": len(left.json())}
