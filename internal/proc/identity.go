package proc

// Identity names a detached program, so that it is known again after this
// process was started anew.
type Identity struct {
	PID  int    `json:"pid"`
	Born string `json:"born"` // when, in the words of the platform
	Mark string `json:"mark"`
}

// Identity returns what names the program. It must be asked for while it runs.
func (p *Process) Identity() Identity { return Identity{p.PID(), born(p.PID()), p.mark} }

// Alive reports whether the program runs. It may be a child of ours or not.
func (i Identity) Alive() bool { return i.Born != "" && born(i.PID) == i.Born }

// Kill ends the program with all that it started, as far as it is found.
func (i Identity) Kill() {
	if i.Alive() {
		killGroup(i.PID)
	}
	sweep(i.Mark, 0)
}
