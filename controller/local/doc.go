// Package local is a controller: it runs the queued rollouts of the 1.0 protocol
// as processes of this machine.
//
// A [Controller] looks at the server once in a while, starts an agent for every
// queued rollout as long as there is room, reports how agents end, and ends those
// that take too long or that nobody wants any more. An agent is a Python class
// whose run method is called, or a command that the controller was given under a
// name ([Config.Commands]). Its environment says where its model is and where its
// events go:
//
//	AGL_OPENAI_BASE_URL   the model
//	AGL_EVENT_URL         where it posts its reward
//	AGL_KEY               the key for both
//
// and what the rollout's env_map takes from its input.
//
// What runs is noted in a folder. A controller that was killed and is started
// anew goes on with the agents that its predecessor started; those that ended in
// the meantime are reported.
//
// The package runs on Linux, macOS and other Unixes; [New] refuses elsewhere.
package local
