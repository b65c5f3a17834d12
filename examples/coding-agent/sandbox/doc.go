// Package sandbox lets an agent work on a small Go repository in a folder of its
// own, and judges what it made of it.
//
// What the agent wants read or written goes through an [os.Root], which no path
// leaves. Its code runs apart from this process, with an empty environment, and is
// held in three ways. It is compiled without a network and without any module, and
// may import what computes and nothing that reaches files, processes or the
// network. It runs without a network, where the kernel lets us take that away. And
// it has limits on time, output, memory and processes; when it ends, or passes
// one, all that it started is killed.
//
// This is meant for the code of a model that makes mistakes. Against a person who
// is looking for a way out, run it in a virtual machine as well.
package sandbox
