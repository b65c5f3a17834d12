// Package storehttp speaks the 0.3 store protocol over HTTP: [NewHandler] serves
// a store.Store, [NewClient] is one.
//
// Both ends live here so that the shapes on the wire stay private and are
// tested against each other. The handler answers as the Python implementation
// does, to the byte where a client could tell, and validates as leniently. Where
// it differs on purpose, as in answering 404 for what does not exist, the test
// that replays recorded traffic names the request and the reason.
//
// Beside the recorded routes there are some of ours, below [Prefix], for what
// the protocol lacks:
//
//	POST   spans/batch                {"spans":[…]}                 many spans, one transaction
//	POST   spans/next/batch           {"attempts":[{ids}…]}         many sequence ids
//	POST   queues/rollouts/release    {"rollouts":[…]}              undo claims
//	GET    runs  runs/{id}  runs/{id}/samples  runs/{id}/metrics  runs/{id}/checkpoints  runs/{id}/checkpoints/latest
//	POST   runs  runs/{id}  runs/{id}/metrics  runs/{id}/checkpoints
//	POST   waits/count                {ids, count or share}         wait for some of them
//	POST   rollouts/{id}/attempts/{id}/token                        a token for one attempt
//	POST   tokens/reader                                            a token for looking, not for changing
//	GET POST PUT DELETE models                                      model backends
//
// Three headers work on every server of ours and are ignored by others:
//
//   - Idempotency-Key makes a repeated request answer as the first one did;
//   - Prefer: wait=SECONDS lets a dequeue wait for work;
//   - X-Request-Id, on every answer, is what the log of the server knows it by.
//
// A claim whose answer cannot be delivered is undone. To also notice a peer
// that reset the connection before reading, serve through [WatchConns].
package storehttp
