// Package agents runs the commands of the page about agents in any language, as
// they are there. It holds tests only.
package agents
