"""Shows the model a picture, in the form that each dialect has for it."""

import asyncio

from conversing import DIALECTS, connect, opened

FORMS = {
    "chat": lambda kind, data: [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}],
    "responses": lambda kind, data: [
        {"type": "input_text", "text": "What is this?"}, {"type": "input_image", "detail": "auto", "image_url": f"data:{kind};base64,{data}"},
    ],
    "messages": lambda kind, data: [
        {"type": "text", "text": "What is this?"}, {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}},
    ],
}


def main(url, key, kind, data):
    async def run():
        steps = []
        for dialect, form in FORMS.items():
            async with opened(connect(url, key, dialect, False, {})) as client:
                talk = DIALECTS[dialect](client, "agent", "stream")
                await talk.turn(form(kind, data))
                steps += talk.steps
        return steps

    return asyncio.run(run())
