// An agent of the Vercel AI SDK with two tools. The first argument is the API that
// its provider speaks; --stream takes the answer as it comes, and --otel exports
// what the SDK itself records of the calls to the address in OTEL_EXPORTER_OTLP_ENDPOINT.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { solve } from "./accountant.mjs";

const env = process.env;
const openai = () => createOpenAI({ baseURL: env.OPENAI_BASE_URL, apiKey: env.OPENAI_API_KEY });
const models = {
  compatible: () => createOpenAICompatible({ name: "agl", baseURL: env.OPENAI_BASE_URL, apiKey: env.OPENAI_API_KEY })("agent"),
  chat: () => openai().chat("agent"),
  responses: () => openai().responses("agent"),
  anthropic: () => createAnthropic({ baseURL: `${env.ANTHROPIC_BASE_URL}/v1`, apiKey: env.ANTHROPIC_API_KEY })("agent"),
};

const [, , dialect, ...flags] = process.argv;
let provider;
if (flags.includes("--otel")) {
  const { OpenTelemetry } = await import("@ai-sdk/otel");
  const { OTLPTraceExporter } = await import("@opentelemetry/exporter-trace-otlp-proto");
  const { BatchSpanProcessor, NodeTracerProvider } = await import("@opentelemetry/sdk-trace-node");
  const { detectResources, envDetector } = await import("@opentelemetry/resources");
  const { registerTelemetry } = await import("ai");
  provider = new NodeTracerProvider({
    resource: detectResources({ detectors: [envDetector] }),
    spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())],
  });
  provider.register();
  registerTelemetry(new OpenTelemetry());
}
const answer = await solve(JSON.parse(env.AGL_TASK), models[dialect](), flags.includes("--stream"));
await provider?.shutdown();
console.log(JSON.stringify({ answer, reward: Number(answer.includes("462")) }));
