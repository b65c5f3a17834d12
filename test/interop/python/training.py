"""Runs Trainer: Baseline, APO, and the two halves of the client-server strategy."""

import os

from openai import AsyncOpenAI, OpenAI

import agentlightning as agl


def ask(endpoint, text):
    """Asks the model and returns what it said."""
    with OpenAI(base_url=endpoint, api_key="none", max_retries=0, timeout=30) as client:
        answer = client.chat.completions.create(model="agent", messages=[{"role": "user", "content": text}], temperature=0.5)
    return answer.choices[0].message.content


@agl.rollout
def answer(task, llm, rollout):
    """The agent of Baseline: its model is the proxy's, under the address of this attempt."""
    agl.emit_message(f"attempt {rollout.attempt.attempt_id} in process {os.getpid()}")
    return 1.0 if ask(llm.endpoint, f"{llm.model}: {task['question']}") == task["answer"] else 0.0


def prompted(url):
    """Makes the agent of APO, which is given a prompt and no model."""

    @agl.prompt_rollout
    def agent(task, prompt_template, rollout):
        llm = agl.ProxyLLM(endpoint=f"{url}/v1", model="agent").with_attempted_rollout(rollout)
        agl.emit_reward(1.0 if ask(llm.endpoint, prompt_template.format(question=task["question"])) == task["answer"] else 0.0)

    return agent


class Triplets(agl.TracerTraceToTriplet):
    """Remembers what it made of the spans that the algorithm showed it."""

    def __init__(self):
        super().__init__()
        self.seen = {}

    def adapt(self, source):
        triplets = super().adapt(source)
        self.seen[source[0].rollout_id] = [t.model_dump(mode="json") for t in triplets]
        return triplets


def trainer(url, **options):
    tracer = agl.OtelTracer()
    return agl.Trainer(
        store=agl.LightningStoreClient(url),
        tracer=tracer,
        runner=agl.LitAgentRunner(tracer, max_rollouts=options.pop("max_rollouts", None), poll_interval=0.1, interval_jitter=0.05, heartbeat_interval=0.5),
        **options,
    )


def baseline(url, strategy, options, environment=(), max_rollouts=None):
    os.environ.update(environment)
    adapter = Triplets()
    t = trainer(
        url, max_rollouts=max_rollouts, adapter=adapter, algorithm=agl.Baseline(polling_interval=0.1, span_verbosity="key_values"),
        strategy={"cs": agl.ClientServerExecutionStrategy, "shm": agl.SharedMemoryExecutionStrategy}[strategy](**options),
        initial_resources={"llm": agl.ProxyLLM(endpoint=f"{url}/v1", model="agent")},
    )
    tasks = [{"question": f"{n}+{n}?", "answer": str(2 * n)} for n in range(8)]
    t.dev(answer, train_dataset=tasks[:6], val_dataset=tasks[6:])
    return adapter.seen


def apo(url, model):
    algorithm = agl.APO(
        AsyncOpenAI(base_url=model, api_key="none"), gradient_model="critic", apply_edit_model="editor",
        gradient_batch_size=2, val_batch_size=2, beam_width=1, branch_factor=1, beam_rounds=1, rollout_batch_timeout=40,
    )
    t = trainer(
        url, n_runners=2, algorithm=algorithm, adapter=agl.TraceToMessages(),
        strategy=agl.ClientServerExecutionStrategy(n_runners=2, managed_store=False),
        initial_resources={"prompt": agl.PromptTemplate(template="Answer: {question}", engine="f-string")},
    )
    tasks = [{"question": f"{n}+{n}?", "answer": str(2 * n)} for n in range(4)]
    t.fit(prompted(url), train_dataset=tasks[:2], val_dataset=tasks[2:])
    return algorithm.get_best_prompt().model_dump()


def main(algorithm, **arguments):
    return {"baseline": baseline, "apo": apo}[algorithm](**arguments)
