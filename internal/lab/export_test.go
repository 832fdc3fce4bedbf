package lab

// Collect takes leave of ended processes that this test started, where something else stopped them.
func (l *Lab) Collect() {
	for _, c := range l.children {
		_ = c.Wait()
	}
	clear(l.children)
}

// Plan gives the role of every Margay daemon that the lab would run, by name.
func (l *Lab) Plan() map[string]string {
	all := map[string]string{}
	for _, d := range l.plan() {
		if d.Role != ServiceRole {
			all[d.Name] = d.Role
		}
	}
	return all
}

// ConfigOf is the configuration file of a daemon.
func (l *Lab) ConfigOf(name string) string { return l.layout.config(name) }
