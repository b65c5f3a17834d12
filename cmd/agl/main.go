// Command agl is Agent Lightning: the server and the tools around it.
package main

import (
	"os"

	"agentlightning/internal/cli"
)

func main() { os.Exit(cli.Main()) }
