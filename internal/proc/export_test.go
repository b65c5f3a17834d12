package proc

// Keeper is the process id of the shell that watches over the group.
func (g *Group) Keeper() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shell.Process.Pid
}
