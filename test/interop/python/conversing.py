"""Holds a conversation with a model, as agents do it with the official clients.

A step is one call of the model. What the client made of each answer is returned,
so that it can be compared with what the model said.
"""

import asyncio
import contextlib
import inspect
import json

import anthropic
import litellm
import openai

TOOLS = {"add": lambda a, b: a + b, "multiply": lambda a, b: a * b}
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}


def schemas(form):
    return [form(name, f"{name}s two numbers") for name in TOOLS]


def use(name, arguments):
    return str(TOOLS[name](**json.loads(arguments)))


async def done(value):
    """Lets one program drive both the clients that are awaited and those that are not."""
    return await value if inspect.isawaitable(value) else value


async def each(stream):
    if hasattr(stream, "__aiter__"):
        async for item in stream:
            yield item
    else:
        for item in stream:
            yield item


@contextlib.asynccontextmanager
async def opened(manager):
    if hasattr(manager, "__aenter__"):
        async with manager as value:
            yield value
    else:
        with manager as value:
            yield value


class Talk:
    """A conversation in one dialect; mode is how its answers are taken: whole, stream, helper or runner."""

    def __init__(self, client, model, mode, thinks=False):
        self.client, self.model, self.mode, self.thinks = client, model, mode, thinks
        self.history, self.steps = [], []

    async def create(self, **more):
        return await done(self.endpoint().create(**self.arguments(), **more))

    async def turn(self, question):
        """Asks, and uses the tools that the model calls until it calls none."""
        self.ask(question)
        if self.mode == "runner":
            async for step in self.runner():
                self.answer(step)
                self.steps.append(step)
            return
        while self.answer(step := await getattr(self, self.mode)()):
            self.steps.append(step)
        self.steps.append(step)


class Chat(Talk):
    def endpoint(self):
        return self.client.chat.completions

    def arguments(self):
        tools = schemas(lambda name, text: {"type": "function", "function": {"name": name, "description": text, "parameters": NUMBERS}})
        return {"model": self.model, "messages": self.history, "tools": tools, "temperature": 0.5}

    def ask(self, question):
        if not self.history:
            self.history.append({"role": "system", "content": "You add and multiply."})
        self.history.append({"role": "user", "content": question})

    def answer(self, step):
        message = {"role": "assistant", "content": step["text"] or None}
        if step["reasoning"]:
            message["reasoning_content"] = step["reasoning"]
        if step["calls"]:
            message["tool_calls"] = [
                {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}} for c in step["calls"]
            ]
        self.history.append(message)
        for c in step["calls"]:
            self.history.append({"role": "tool", "tool_call_id": c["id"], "content": use(c["name"], c["arguments"])})
        return step["calls"]

    def step(self, completion, types=()):
        choice, usage = completion.choices[0], completion.usage
        return {
            "id": completion.id, "text": choice.message.content or "", "reasoning": getattr(choice.message, "reasoning_content", None) or "", "finish": choice.finish_reason, "types": list(types),
            "calls": [{"id": c.id, "name": c.function.name, "arguments": c.function.arguments} for c in choice.message.tool_calls or ()],
            "usage": usage and [usage.prompt_tokens, usage.completion_tokens],
            # Members that the client does not know stay readable.
            "token_ids": [getattr(completion, "prompt_token_ids", None), getattr(choice, "token_ids", None)],
        }

    async def whole(self):
        return self.step(await self.create())

    async def stream(self):
        step = {"text": "", "reasoning": "", "calls": [], "types": [], "usage": None, "finish": None, "token_ids": [None, []]}
        async for chunk in each(await self.create(stream=True)):
            step["id"] = chunk.id
            step["types"].append(chunk.object)
            if usage := getattr(chunk, "usage", None):
                step["usage"] = [usage.prompt_tokens, usage.completion_tokens]
            step["token_ids"][0] = getattr(chunk, "prompt_token_ids", None) or step["token_ids"][0]
            for choice in chunk.choices:
                step["text"] += choice.delta.content or ""
                step["reasoning"] += getattr(choice.delta, "reasoning_content", None) or ""
                step["finish"] = choice.finish_reason or step["finish"]
                step["token_ids"][1] += getattr(choice, "token_ids", None) or []
                for c in choice.delta.tool_calls or ():
                    if c.index == len(step["calls"]):
                        step["calls"].append({"id": c.id, "name": c.function.name, "arguments": ""})
                    step["calls"][c.index]["arguments"] += c.function.arguments or ""
        return step

    async def helper(self):
        types = []
        manager = self.endpoint().stream(**self.arguments(), stream_options={"include_usage": True})
        async with opened(manager) as stream:
            async for event in each(stream):
                types.append(event.type)
            return self.step(await done(stream.get_final_completion()), types)


class Completions(Talk):
    """No tools here, and the program keeps the conversation in its prompt."""

    def endpoint(self):
        return self.client.completions

    def ask(self, question):
        self.history.append(question)

    def answer(self, step):
        self.history.append(step["text"])
        return False

    def arguments(self):
        return {"model": self.model, "prompt": "".join(self.history), "max_tokens": 64}

    async def whole(self):
        answer = await self.create()
        usage = answer.usage
        return {"id": answer.id, "text": answer.choices[0].text, "finish": answer.choices[0].finish_reason, "calls": [], "types": [],
                "usage": [usage.prompt_tokens, usage.completion_tokens]}

    async def stream(self):
        step = {"text": "", "calls": [], "types": [], "usage": None, "finish": None}
        async for chunk in each(await self.create(stream=True, stream_options={"include_usage": True})):
            step["id"] = chunk.id
            if chunk.usage:
                step["usage"] = [chunk.usage.prompt_tokens, chunk.usage.completion_tokens]
            for choice in chunk.choices:
                step["text"] += choice.text
                step["finish"] = choice.finish_reason or step["finish"]
        return step


class Failed(Exception):
    """An answer that the stream itself says has failed, of which the client makes no error."""


class Responses(Talk):
    def endpoint(self):
        return self.client.responses

    def arguments(self):
        tools = schemas(lambda name, text: {"type": "function", "name": name, "description": text, "parameters": NUMBERS, "strict": False})
        return {"model": self.model, "instructions": "You add and multiply.", "input": self.history, "tools": tools, "store": False}

    def ask(self, question):
        self.history.append({"role": "user", "content": question})

    def answer(self, step):
        self.history += step.pop("output")
        for c in step["calls"]:
            self.history.append({"type": "function_call_output", "call_id": c["id"], "output": use(c["name"], c["arguments"])})
        return step["calls"]

    def step(self, response, types=()):
        return {
            "id": response.id, "text": response.output_text, "reasoning": "".join(p.text for i in response.output if i.type == "reasoning" for p in i.content), "finish": response.status, "types": list(types),
            "output": [item.model_dump(exclude_none=True, mode="json") for item in response.output],
            "calls": [{"id": i.call_id, "name": i.name, "arguments": i.arguments} for i in response.output if i.type == "function_call"],
            "usage": [response.usage.input_tokens, response.usage.output_tokens],
        }

    async def whole(self):
        return self.step(await self.create())

    async def stream(self):
        """Puts the answer together from the deltas, and compares with what the end says of it."""
        types, thoughts, texts, arguments, numbers = [], "", {}, {}, []
        async for event in each(await self.create(stream=True)):
            types.append(event.type)
            numbers.append(event.sequence_number)
            if event.type == "response.output_text.delta":
                texts[event.output_index] = texts.get(event.output_index, "") + event.delta
            elif event.type == "response.reasoning_text.delta":
                thoughts += event.delta
            elif event.type == "response.function_call_arguments.delta":
                arguments[event.output_index] = arguments.get(event.output_index, "") + event.delta
            elif event.type == "response.failed":
                raise Failed(event.response.error.message)
            elif event.type == "response.completed":
                step = self.step(event.response, types)
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), numbers
        assert step["reasoning"] == thoughts, (step, thoughts)
        assert step["text"] == "".join(texts.values()), (step["text"], texts)
        assert [c["arguments"] for c in step["calls"]] == [arguments[i] for i in sorted(arguments)], (step["calls"], arguments)
        return step

    async def helper(self):
        types = []
        async with opened(self.endpoint().stream(**self.arguments())) as stream:
            async for event in each(stream):
                types.append(event.type)
            return self.step(await done(stream.get_final_response()), types)


class Messages(Talk):
    def endpoint(self):
        return self.client.messages

    def arguments(self):
        tools = schemas(lambda name, text: {"name": name, "description": text, "input_schema": NUMBERS})
        return {"model": self.model, "system": [{"type": "text", "text": "You add and multiply.", "cache_control": {"type": "ephemeral"}}],
                "messages": self.history, "tools": tools, "max_tokens": 2048,
                **({"thinking": {"type": "enabled", "budget_tokens": 1024}} if self.thinks else {})}

    def ask(self, question):
        self.history.append({"role": "user", "content": question})

    def answer(self, step):
        self.history.append({"role": "assistant", "content": step.pop("content")})
        if step["calls"]:
            self.history.append({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": c["id"], "content": use(c["name"], c["arguments"])} for c in step["calls"]
            ]})
        return step["calls"]

    def step(self, message, types=()):
        return {
            "id": message.id, "text": "".join(b.text for b in message.content if b.type == "text"),
            "reasoning": "".join(b.thinking for b in message.content if b.type == "thinking"), "finish": message.stop_reason,
            "calls": [{"id": b.id, "name": b.name, "arguments": json.dumps(b.input)} for b in message.content if b.type == "tool_use"],
            "usage": [message.usage.input_tokens, message.usage.output_tokens], "types": list(types),
            "content": [b.model_dump(exclude_none=True, mode="json") for b in message.content],
        }

    async def whole(self):
        return self.step(await self.create())

    async def stream(self):
        step = {"types": [], "content": [], "usage": [None, None]}
        async for event in each(await self.create(stream=True)):
            step["types"].append(event.type)
            if event.type == "message_start":
                step["id"], step["usage"][0] = event.message.id, event.message.usage.input_tokens
            elif event.type == "content_block_start":
                assert event.index == len(step["content"]), (event, step)
                step["content"].append({**event.content_block.model_dump(exclude_none=True, mode="json"), "input": ""} if event.content_block.type == "tool_use"
                                       else event.content_block.model_dump(exclude_none=True, mode="json"))
            elif event.type == "content_block_delta":
                block = step["content"][event.index]
                if event.delta.type == "text_delta":
                    block["text"] += event.delta.text
                elif event.delta.type == "thinking_delta":
                    block["thinking"] += event.delta.thinking
                elif event.delta.type == "signature_delta":
                    block["signature"] = event.delta.signature
                else:
                    block["input"] += event.delta.partial_json
            elif event.type == "message_delta":
                step["finish"], step["usage"][1] = event.delta.stop_reason, event.usage.output_tokens
                if event.usage.input_tokens is not None:
                    step["usage"][0] = event.usage.input_tokens
        for block in step["content"]:
            if block["type"] == "tool_use":
                block["input"] = json.loads(block["input"] or "{}")
        step["text"] = "".join(b["text"] for b in step["content"] if b["type"] == "text")
        step["reasoning"] = "".join(b["thinking"] for b in step["content"] if b["type"] == "thinking")
        step["calls"] = [{"id": b["id"], "name": b["name"], "arguments": json.dumps(b["input"])} for b in step["content"] if b["type"] == "tool_use"]
        return step

    async def helper(self):
        types = []
        async with opened(self.endpoint().stream(**self.arguments())) as stream:
            async for event in each(stream):
                types.append(event.type)
            return self.step(await done(stream.get_final_message()), types)


    async def runner(self):
        """The client itself calls the tools, and the model again, until it is done."""
        tools = [self.tool(name) for name in TOOLS]
        async for stream in each(self.client.beta.messages.tool_runner(**{**self.arguments(), "messages": list(self.history), "tools": tools}, stream=True)):
            yield self.step(await done(stream.get_final_message()))

    def tool(self, name):
        schema = next(s for s in self.arguments()["tools"] if s["name"] == name)
        options = {"name": name, "description": schema["description"], "input_schema": schema["input_schema"]}
        if isinstance(self.client, anthropic.AsyncAnthropic):

            async def call(a, b):
                return str(TOOLS[name](a, b))

            return anthropic.beta_async_tool(call, **options)
        return anthropic.beta_tool(lambda a, b: str(TOOLS[name](a, b)), **options)


class LiteLLM(Chat):
    """LiteLLM as a library, which speaks the dialect of the provider that stands before the model's name."""

    def arguments(self):
        return {**super().arguments(), **self.client}

    async def create(self, **more):
        return await litellm.acompletion(**self.arguments(), **more)

    async def helper(self):
        chunks = [chunk async for chunk in each(await self.create(stream=True, stream_options={"include_usage": True}))]
        return self.step(litellm.stream_chunk_builder(chunks, messages=self.history))


DIALECTS = {"chat": Chat, "completions": Completions, "responses": Responses, "messages": Messages, "litellm": LiteLLM}


def connect(url, key, dialect, awaited, headers, **more):
    options = {"api_key": key, "max_retries": 0, "default_headers": headers, **more}
    if dialect == "messages":
        return (anthropic.AsyncAnthropic if awaited else anthropic.Anthropic)(base_url=url, **options)
    return (openai.AsyncOpenAI if awaited else openai.OpenAI)(base_url=url + "/v1", **options)


def main(url, key, model, dialect, mode, awaited, questions, headers, thinks, provider=None):
    async def talk(client):
        talk = DIALECTS[dialect](client, model, mode, thinks)
        for question in questions:
            await talk.turn(question)
        return talk.steps

    async def run():
        if provider:
            base = url if provider == "anthropic" else url + "/v1"
            return await talk({"model": f"{provider}/{model}", "api_base": base, "api_key": key, "max_retries": 0, "extra_headers": headers})
        async with opened(connect(url, key, dialect, awaited, headers)) as client:
            return await talk(client)

    return asyncio.run(run())
